// Images of containers on this host: who fetches them, and what one says about itself. Nothing is run by whoever
// fetches them; image_root.h says how a replica gets into one.
//
//   envs/<key>/<n>/root        the image's files
//   envs/<key>/<n>/config.json what it says about itself, as `podman image inspect` has it
//   envs/<key>/<n>/image-id    which it was
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runner/environment.h"
#include "runner/image_root.h"
#include "schema/result.h"

namespace dtrain::runner {

struct ImageConfig {
  Environment env = {};                      // what it sets
  std::vector<std::string> entrypoint = {};  // before the arguments, and
  std::vector<std::string> command = {};     // what it runs without any
  std::string directory = "/";               // where
};
// DataLoss: no such thing.
Result<ImageConfig> parse_image_config(std::string_view json);

// The program that fetches an image, podman or docker.
struct ImageFetcher {
  std::string program;   // its path; empty: this host has none
  std::string image_id;  // of the image as it is here by that name; empty: it is not here
  std::string archive_stamp = {};  // of what is a file here: its size and time
  // What tells what is here now from another one of the same name; empty: nothing is known.
  const std::string& expected() const { return archive_stamp.empty() ? image_id : archive_stamp; }
};
// One answer for a submission, whose members are prepared one after the other.
ImageFetcher find_image_fetcher(const std::string& image, const Environment& inherited, const std::string& submission);

// A name as everybody means it who writes it without a registry, Kubernetes too: docker.io/library/python:3.11. Any other
// as it is.
std::string full_image_name(const std::string& image);

// Whether what was made is of the image that there is now.
bool is_of(const std::filesystem::path& environment, const ImageFetcher& fetcher);

// An image as replicas get it.
struct UsedImage {
  std::filesystem::path files;
  ImageConfig config;
};
Result<UsedImage> made_image(const std::filesystem::path& environment);
// A directory of files says nothing about itself.
UsedImage image_of_directory(const std::filesystem::path& files);

// What a process in an image begins with: what the image sets, and of `outside` all that is not about the host's own
// files: proxies, settings of pip.
Environment environment_in_image(const ImageConfig& config, const Environment& outside);

// Writes /.dtrain/command and /.dtrain/entrypoint into what a replica has of its own in the image: what it runs by
// itself, in its directory, and what goes before arguments. That directory is made, as it is where containers are started.
Status write_image_programs(const UsedImage& image, const std::filesystem::path& layer);

// Why no process of this user could get into an image on this host; empty: it can. A directory below `home` is used to
// try it.
std::string trouble_with_images(const std::filesystem::path& home);

// `dtrain in-image`: a line of a shell, in what is being made of an image, where what it writes stays. The exit code; an
// error where it did not run.
Result<int> run_in_image(const std::filesystem::path& environment, const std::string& script);

}  // namespace dtrain::runner
