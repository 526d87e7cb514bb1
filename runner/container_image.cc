#include "runner/container_image.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "runner/ask_program.h"
#include "runner/process.h"
#include "runner/python.h"
#include "schema/clock.h"
#include "schema/shell_words.h"
#include "schema/small_file.h"

namespace dtrain::runner {
namespace fs = std::filesystem;
namespace {

constexpr const char* kProgramsInImage = "/.dtrain";
constexpr int64_t kInspectsMs = 20'000;
constexpr int64_t kFetcherHoldsMs = 10'000;

// Without what ends the line. None: the program has none by that name, or does not work.
std::string ask_image_id(const std::string& program, const std::string& image, const Environment& inherited) {
  // Without its warnings.
  const auto answer = ask_program({"/bin/sh", "-c", "exec \"$@\" 2>/dev/null", "sh", program, "image", "inspect", "--format", "{{.Id}}", image},
                                  inherited, kInspectsMs);
  if (!answer.ok() || !answer->succeeded) return "";
  return answer->said.substr(answer->said.rfind('\n') + 1);
}

std::vector<std::string> texts_of(const nlohmann::json& config, const char* key) {
  std::vector<std::string> texts;
  const auto found = config.find(key);
  if (found == config.end() || !found->is_array()) return texts;
  for (const auto& one : *found) {
    if (one.is_string()) texts.push_back(one.get<std::string>());
  }
  return texts;
}

// "docker-archive:/images/a.tar"; empty for what is no file or directory of this host.
std::string stamp_of_archive(const std::string& image) {
  const size_t colon = image.find(":/");
  struct stat info {};
  if (colon == std::string::npos) return "";
  // A tag may follow: a path that is not there without one.
  std::string path = image.substr(colon + 1);
  if (::stat(path.c_str(), &info) != 0 && path.find(':') != std::string::npos) path.resize(path.rfind(':'));
  if (::stat(path.c_str(), &info) != 0) return "";
  return fmt::format("{} {}.{:09}", info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
}

Status write_program(const fs::path& path, const std::string& before, const std::vector<std::string>& words, std::string_view arguments) {
  std::string text = "#!/bin/sh\n" + before;
  if (words.empty() && arguments.empty()) {
    text += "echo 'the image says of no program that it runs it by itself: say what, with `run`' >&2\nexit 127\n";
  } else {
    text += "exec";
    for (const std::string& word : words) text += " " + shell_quoted(word);
    text += fmt::format("{}\n", arguments);
  }
  TRY(write_file(path, text));
  if (::chmod(path.c_str(), 0755) != 0) return errno_error("chmod " + path.string(), errno);
  return ok();
}

}  // namespace

Result<ImageConfig> parse_image_config(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return Error{Code::DataLoss, "what the image says about itself is not readable", ""};
  ImageConfig config;
  for (const std::string& variable : texts_of(json, "Env")) {
    const size_t equals = variable.find('=');
    if (equals != std::string::npos && equals > 0) config.env[variable.substr(0, equals)] = variable.substr(equals + 1);
  }
  config.entrypoint = texts_of(json, "Entrypoint");
  config.command = texts_of(json, "Cmd");
  const auto directory = json.find("WorkingDir");
  if (directory != json.end() && directory->is_string() && directory->get<std::string>().starts_with('/')) {
    config.directory = fs::path(directory->get<std::string>()).lexically_normal();
  }
  return config;
}

ImageFetcher find_image_fetcher(const std::string& image, const Environment& inherited, const std::string& submission) {
  struct Known {
    ImageFetcher fetcher;
    int64_t at_ms = 0;
  };
  static thread_local std::string whose;
  static thread_local std::map<std::string, Known> all;   // by image
  if (std::exchange(whose, submission) != submission) all.clear();
  const int64_t now = boottime_ms();
  const auto known = all.find(image);
  if (known != all.end() && now - known->second.at_ms < kFetcherHoldsMs) return known->second.fetcher;
  ImageFetcher chosen;
  for (const char* name : {"podman", "docker"}) {
    const std::string program = find_program(search_path({}, inherited), name);
    if (program.empty()) continue;
    const std::string id = ask_image_id(program, image, inherited);
    if (!id.empty() || chosen.program.empty()) chosen = {program, id};
    if (!id.empty()) break;
  }
  chosen.archive_stamp = stamp_of_archive(image);
  all[image] = {chosen, now};
  return chosen;
}

std::string full_image_name(const std::string& image) {
  const size_t slash = image.find('/');
  if (image.find(":/") != std::string::npos) return image;   // where it lies, and how
  if (slash == std::string::npos) return "docker.io/library/" + image;
  const std::string first = image.substr(0, slash);
  const bool is_registry = first == "localhost" || first.find_first_of(".:") != std::string::npos;
  return is_registry ? image : "docker.io/" + image;
}

bool is_of(const fs::path& environment, const ImageFetcher& fetcher) {
  if (fetcher.expected().empty()) return true;
  return read_small_file(environment / "image-id") == fetcher.expected();
}

Result<UsedImage> made_image(const fs::path& environment) {
  const auto text = read_small_file(environment / "config.json");
  if (!text) return Error{Code::Unavailable, fmt::format("{} is not there any more", (environment / "config.json").string()), ""};
  TRY(ImageConfig config, parse_image_config(*text));
  return UsedImage{environment / "root", std::move(config)};
}

UsedImage image_of_directory(const fs::path& files) {
  return {files, ImageConfig()};
}

Environment environment_in_image(const ImageConfig& config, const Environment& outside) {
  Environment env = config.env;
  for (const auto& [name, value] : outside) {
    if (!is_about_host(name, value)) env[name] = value;
  }
  env.emplace("PATH", kUsualPath);
  env.emplace("HOME", "/root");
  return env;
}

Status write_image_programs(const UsedImage& image, const fs::path& layer) {
  const ImageConfig& config = image.config;
  TRY(make_in_layer(image.files.string(), layer, config.directory));
  TRY(make_in_layer(image.files.string(), layer, kProgramsInImage));
  const fs::path folder = layer / "upper" / fs::path(kProgramsInImage).relative_path();
  std::vector<std::string> alone = config.entrypoint;
  alone.insert(alone.end(), config.command.begin(), config.command.end());
  TRY(write_program(folder / "command", fmt::format("cd {}\n", shell_quoted(config.directory)), alone, ""));
  return write_program(folder / "entrypoint", "", config.entrypoint, " \"$@\"");
}

std::string trouble_with_images(const fs::path& home) {
  static bool works = false;
  if (works) return "";
  const fs::path place = home / "image-probe";
  std::error_code error;
  remove_layer(place / "layer");
  fs::create_directories(place / "files", error);
  if (error) return fmt::format("{}: {}", place.string(), error.message());
  SpawnRequest request;
  request.argv = {"/nothing"};
  request.image = {(place / "files").string(), {}};
  request.image_layer = place / "layer";
  auto child = spawn(request);
  remove_layer(place / "layer");
  fs::remove_all(place, error);
  // Once it is in there, there is no such program.
  works = !child.ok() && child.error().code == Code::NotFound;
  return works || child.ok() ? "" : child.error().message;
}

Result<int> run_in_image(const fs::path& environment, const std::string& script) {
  TRY(const UsedImage image, made_image(environment));
  std::error_code error;
  const std::string here = fs::current_path(error).string();
  ImageRoot root{image.files.string(), {{here, here}}};
  TRY(const ImageRootPlan plan, ImageRootPlan::make(root, ""));
  if (const auto failure = plan.enter(); failure.error != 0) return plan.explain(failure);
  if (::chdir(here.c_str()) != 0) return errno_error("enter " + here, errno);
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment_in_image(image.config, own_process_environment())) {
    variables.push_back(name + "=" + value);
  }
  std::vector<char*> env;
  for (std::string& variable : variables) env.push_back(variable.data());
  env.push_back(nullptr);
  std::string text = script;
  std::array<char*, 4> argv = {const_cast<char*>("sh"), const_cast<char*>("-c"), text.data(), nullptr};
  ::execve("/bin/sh", argv.data(), env.data());
  return errno_error("in the image: /bin/sh", errno);
}

}  // namespace dtrain::runner
