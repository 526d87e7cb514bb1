// Where the Spec of a `train` comes from: a YAML file, or a command on the command line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schema/result.h"
#include "schema/spec.h"

namespace dtrain::cli {

// YAML text, what messages call it, and the directory it describes: that is what gets synced.
struct SpecSource {
  std::string yaml;
  std::string file_name;       // "dtrain.yml", as a person would type it
  std::filesystem::path root;  // absolute
  bool is_file = true;         // false: made of the command line, nobody has seen its lines
};

// NotFound when it was deleted.
Result<std::filesystem::path> current_directory();

// `typed` (-f; "-": standard input), else dtrain.yml, else riseml.yml, of the nearest directory upwards
// that has one. The project is the directory of that; of a file of another name the nearest one upwards from here that has a
// dtrain.yml and the file below it, or the current one, or, of a file elsewhere, the file's; of a manifest of Kubernetes, and
// of what comes through a pipe, the current one.
Result<SpecSource> find_spec_file(const std::string& typed);

// train --workers 2 --ps 1 --gpus 1 -- python train.py
struct CommandForm {
  static constexpr uint64_t kLeftOut = UINT64_MAX;
  std::vector<std::string> words;  // after "--"
  uint64_t workers = kLeftOut;
  uint64_t ps = kLeftOut;
  uint64_t gpus = kLeftOut;
  std::string cpus;  // as typed; empty: not given
  std::string mem;
  std::string framework;
  std::optional<std::string> image;  // runs what it runs by itself where there are no words
  bool is_given() const;  // any of them
  bool is_image_alone() const;
  bool has_others() const;   // but the image
};

// The YAML a person would have written for it. The project is the current directory.
Result<SpecSource> spec_of_command(const CommandForm& form, const std::filesystem::path& here);

// "name=value" words, as -p and --set take them; a name twice only in --set, where the last one counts.
Result<std::vector<std::pair<std::string, std::string>>> parse_assignments(
    const std::vector<std::string>& words, std::string_view option);

// Whether a variable is set here, as ParseOptions has it.
bool is_in_shell(const std::string& name);

// A project name made from a directory's name: what can't be in one becomes '-'.
std::string project_name_of(const std::filesystem::path& directory);

}  // namespace dtrain::cli
