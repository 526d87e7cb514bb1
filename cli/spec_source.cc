#include "cli/spec_source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cli/connection.h"
#include "cli/words.h"
#include "schema/fd.h"
#include "schema/kubeflow.h"
#include "schema/quote.h"
#include "schema/shell_words.h"

namespace dtrain::cli {

namespace fs = std::filesystem;

namespace {

constexpr const char* kFileNames[] = {"dtrain.yml", "riseml.yml"};
// A configuration is written by hand; what is larger is some other file.
constexpr size_t kFileMaxBytes = 16u << 20;

Result<std::string> read_all(int fd, const std::string& shown) {
  std::string text;
  char buffer[64 << 10];
  while (true) {
    ssize_t got = read(fd, buffer, sizeof buffer);
    if (got == 0) return text;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error("cannot read " + shown, errno);
    text.append(buffer, static_cast<size_t>(got));
    if (text.size() > kFileMaxBytes) {
      return Error{Code::InvalidArgument,
                   fmt::format("{} is larger than {}: not a configuration", shown, human_size(kFileMaxBytes)),
                   "pass the YAML file with -f"};
    }
  }
}

// A dtrain.yml says by its place what the project is. Another file is one of the project that it lies in, as seen from here.
fs::path project_of(const fs::path& file, const fs::path& here) {
  const auto holds_file = [&](const fs::path& folder) { return *file.lexically_relative(folder).begin() != ".."; };
  if (std::ranges::find(kFileNames, file.filename()) != std::end(kFileNames)) return file.parent_path();
  const fs::path project = project_root();
  return holds_file(project) ? project : holds_file(here) ? here : file.parent_path();
}

Result<std::string> read_yaml_file(const fs::path& path) {
  Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return errno_error("cannot read " + in_quotes(path.string()), errno);
  return read_all(file.get(), in_quotes(path.string()));
}

}  // namespace

Result<fs::path> current_directory() {
  std::error_code failed;
  fs::path here = fs::current_path(failed);
  if (!failed) return here;
  return Error{Code::NotFound, "the current directory is gone", "cd to a directory that exists"};
}

Result<SpecSource> find_spec_file(const std::string& typed) {
  TRY(const fs::path here, current_directory());
  std::error_code failed;
  fs::path path;
  if (typed == "-") {
    TRY(std::string text, read_all(STDIN_FILENO, "standard input"));
    return SpecSource{std::move(text), "standard input", here};
  }
  if (!typed.empty()) {
    path = typed;
    if (!fs::exists(path, failed)) {
      return Error{Code::InvalidArgument, fmt::format("{} does not exist", in_quotes(typed)),
                   fmt::format("dtrain init -f {} writes one to start from", shell_quoted(typed))};
    }
    if (fs::is_directory(path, failed)) {
      return Error{
          Code::InvalidArgument,
          fmt::format("{} is a directory, and -f takes a YAML file", in_quotes(typed)),
          "name the file in it; without -f it is dtrain.yml in the current directory or above"};
    }
  } else {
    fs::path project = project_root();
    for (const char* name : kFileNames) {
      if (path.empty() && fs::exists(project / name, failed)) path = project / name;
    }
    if (path.empty()) {
      return Error{Code::InvalidArgument,
                   fmt::format("there is no dtrain.yml and no riseml.yml in {} or above it",
                               in_quotes(here.string())),
                   "dtrain init writes a dtrain.yml; or run without one: dtrain train -- COMMAND"};
    }
  }
  SpecSource source;
  TRY(source.yaml, read_yaml_file(path));
  fs::path absolute = fs::absolute(path, failed).lexically_normal();
  const bool is_file = fs::is_regular_file(path, failed);
  // Manifests lie in a folder of their own, and are applied from above it; a pipe lies nowhere.
  source.root = !is_file || is_manifest_text(source.yaml) ? here : project_of(absolute, here);
  fs::path shown = is_file ? absolute.lexically_relative(here) : path;
  source.file_name = shown.empty() ? absolute.string() : shown.string();
  return source;
}

bool CommandForm::is_given() const { return image || has_others(); }
bool CommandForm::is_image_alone() const { return image && !has_others(); }
bool CommandForm::has_others() const {
  return !words.empty() || workers != kLeftOut || ps != kLeftOut || gpus != kLeftOut || !cpus.empty() || !mem.empty() || !framework.empty();
}

Result<SpecSource> spec_of_command(const CommandForm& form, const fs::path& here) {
  if (form.words.empty() && !form.image) {
    return Error{Code::InvalidArgument,
                 "--workers, --ps, --gpus, --cpus, --mem and --framework go with a command",
                 "dtrain train --workers 2 --ps 1 -- python train.py; to change a file's values: "
                 "--set train.resources.gpus=1"};
  }
  const bool some_workers = form.workers != CommandForm::kLeftOut;
  const uint64_t ps = form.ps == CommandForm::kLeftOut ? 0 : form.ps;
  bool distributed = some_workers || ps > 0;
  std::string framework = form.framework;
  // TF_CONFIG is how RiseML's workers and ps found each other; it is what such a command expects.
  if (framework.empty()) framework = distributed ? "tensorflow" : "command";
  if (framework == "command" && distributed) {
    return Error{Code::InvalidArgument, "--framework command has neither --workers nor --ps",
                 "leave --framework out: each process then finds the others in TF_CONFIG"};
  }
  bool is_word = framework.find_first_not_of("abcdefghijklmnopqrstuvwxyz") == std::string::npos;
  std::string yaml = fmt::format("project: {}\ntrain:\n  framework: {}\n", project_name_of(here),
                                 is_word ? framework : nlohmann::json(framework).dump());
  std::string resources;
  auto add = [&](std::string_view key, const std::string& value) {
    resources += fmt::format("{}{}: {}", resources.empty() ? "" : ", ", key, value);
  };
  if (!form.cpus.empty()) add("cpus", form.cpus);
  if (!form.mem.empty()) add("mem", form.mem);
  if (form.gpus != CommandForm::kLeftOut) add("gpus", fmt::format("{}", form.gpus));
  if (form.image) yaml += fmt::format("  image: {}\n", yaml_scalar(*form.image));
  if (!resources.empty()) yaml += fmt::format("  resources: {{{}}}\n", resources);
  // That there is no such framework is told by its name, and of a role by the role's.
  if (distributed && (framework == "pytorch" || framework == "jax" || framework == "mpi")) {
    yaml += fmt::format("  {}:\n    distributed: {{worker: {}{}}}\n", framework, some_workers ? form.workers : 1,
                        ps > 0 ? fmt::format(", ps: {}", ps) : "");
  }
  if (distributed && framework == "tensorflow") {
    yaml += fmt::format("  tensorflow:\n    distributed: {{worker: {}, ps: {}}}\n",
                        some_workers ? form.workers : 1, ps);
  }
  if (form.words.empty()) return SpecSource{yaml, "command line", here, false};
  std::string run;
  // One word with blanks is a line for the shell, unless there is a program of that name.
  std::error_code failed;
  const std::string& first = form.words.front();
  const bool is_line = form.words.size() == 1 && first.find_first_of(" \t\n") != std::string::npos && !fs::exists(here / first, failed);
  if (is_line) run = first;
  for (const std::string& word : is_line ? std::vector<std::string>() : form.words) run += (run.empty() ? "" : " ") + shell_quoted(word);
  // A JSON string is a YAML string too.
  yaml += fmt::format("  run: {}\n", nlohmann::json(run).dump(
                                         -1, ' ', false, nlohmann::json::error_handler_t::replace));
  return SpecSource{yaml, "command line", here, false};
}

namespace {

// One that works, but where a name was typed: what it takes is not known here.
std::string example_for(const std::string& word, std::string_view option) {
  const bool named = !word.empty() && word[0] != '=' && word[0] != '-';
  if (named) return word + "=VALUE";
  return option == "--set" ? "train.resources.cpus=2" : "learning-rate=0.1";
}

using Assignments = std::vector<std::pair<std::string, std::string>>;

// Who gives a parameter twice wants both of its values.
Status refuse_repeated(const Assignments& pairs) {
  for (const auto& [name, first] : pairs) {
    std::string values;
    int count = 0;
    for (const auto& [other, value] : pairs) {
      if (other != name) continue;
      values += (count++ == 0 ? "" : ",") + value;
    }
    if (count < 2) continue;
    const bool plain = values.find_first_of("[]{}") == std::string::npos;
    return Error{Code::InvalidArgument, fmt::format("-p {} is given {} times", in_quotes(name), count),
                 fmt::format("a list of values is written -p {}",
                             shell_quoted(fmt::format("{}=[{}]", name, plain ? values : "A,B")))};
  }
  return ok();
}

}  // namespace

Result<std::vector<std::pair<std::string, std::string>>> parse_assignments(
    const std::vector<std::string>& words, std::string_view option) {
  Assignments pairs;
  for (const std::string& word : words) {
    size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0) {
      return Error{Code::InvalidArgument,
                   fmt::format("{} takes name=value, not {}", option, in_quotes(word)),
                   fmt::format("for example {} {}", option, example_for(word, option))};
    }
    pairs.emplace_back(word.substr(0, equals), word.substr(equals + 1));
  }
  if (option == "-p") TRY(refuse_repeated(pairs));
  return pairs;
}

bool is_in_shell(const std::string& name) { return std::getenv(name.c_str()) != nullptr; }

std::string project_name_of(const fs::path& directory) {
  std::string name;
  for (const char c : directory.filename().string()) {
    const bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    if (good) {
      name += c;
    } else if (!name.ends_with('-')) {
      name += '-';   // one for a letter of several bytes, too
    }
  }
  size_t first = name.find_first_not_of("-_");
  if (first == std::string::npos) return "project";
  return name.substr(first, name.find_last_not_of("-_") - first + 1);
}

}  // namespace dtrain::cli
