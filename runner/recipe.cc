#include "runner/recipe.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>
#include <sstream>

#include "runner/ask_program.h"
#include "runner/python.h"
#include "schema/small_file.h"
#include "schema/clock.h"
#include "schema/sha256.h"

namespace dtrain::runner {
namespace fs = std::filesystem;
namespace {

constexpr const char* kAskAbi =
    "import sys; i = sys.implementation; "
    "print(i.cache_tag, getattr(i, '_multiarch', ''), sys.base_prefix)";
constexpr size_t kKeyDigits = 16;
constexpr int64_t kAbiHoldsMs = 10'000;
// A python that says nothing for so long holds up all other file work of its host.
constexpr int64_t kAbiComesMs = 10'000;

// The members of a set ask one after the other, and get one answer, also when there is none.
Result<std::string> ask_abi(const std::string& python, const Environment& inherited,
                            const std::string& host_name) {
  struct Answer {
    Result<std::string> abi;
    int64_t at_ms;
  };
  static thread_local std::map<std::string, Answer> answers;
  const int64_t now = boottime_ms();
  const auto known = answers.find(python);
  if (known != answers.end() && now - known->second.at_ms < kAbiHoldsMs) return known->second.abi;
  auto abi = run_for_abi(python, inherited, host_name, kAbiComesMs);
  const int64_t then = boottime_ms();
  if (abi.ok() || then - now >= kAbiComesMs) answers.insert_or_assign(python, Answer{abi, then});
  return abi;
}

std::string machine() {
  struct utsname names {};
  ::uname(&names);
  return names.machine;
}

// The words of a line as a shell has them, roughly: what a word is not, it names no file.
std::vector<std::string> words_of(const std::string& line) {
  std::string text;
  for (const char c : line) {
    if (c == '\'' || c == '"') continue;
    text += c == '=' || c == ';' || c == '&' || c == '|' || c == '(' || c == ')' ? ' ' : c;
  }
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) {
    if (word.starts_with("-r") || word.starts_with("-c") || word.starts_with("-e"))
      word.erase(0, 2);
    if (word.starts_with("file:")) word.erase(0, 5);
    if (const size_t extras = word.find('['); extras != std::string::npos) word.resize(extras);
    if (!word.empty() && word.front() != '-') words.push_back(word);
  }
  return words;
}

// Below the tree, or nothing: neither absolute nor past its top.
fs::path inside(const fs::path& tree, const fs::path& name) {
  const fs::path normal = name.lexically_normal();
  if (normal.is_absolute() || normal.empty() || *normal.begin() == "..") return {};
  return tree / normal;
}

// What is in it.
std::optional<std::string> add_file(Recipe& recipe, const fs::path& tree, const fs::path& path) {
  auto text = read_small_file(path);
  if (text) recipe.files.emplace(path.lexically_relative(tree).string(), to_hex(sha256(*text)));
  return text;
}

void add_directory(Recipe& recipe, const fs::path& tree, const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(folder, error)) {
    if (entry.is_regular_file(error)) (void)add_file(recipe, tree, entry.path());
  }
}

// `followed`: files and directories whose turn has been.
void add_named(Recipe& recipe, const fs::path& tree, const fs::path& name, std::set<fs::path>& followed) {
  const fs::path path = inside(tree, name);
  std::error_code error;
  if (path.empty() || !fs::exists(path, error) || !followed.insert(path).second) return;
  if (fs::is_directory(path, error)) {
    if (path.lexically_relative(tree) == ".")
      recipe.snapshot = tree.filename().string();
    else
      add_directory(recipe, tree, path);
    return;
  }
  const auto text = add_file(recipe, tree, path);
  if (!text) return;
  if (path.extension() != ".txt" && path.extension() != ".in") return;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    line.resize(std::min(line.find('#'), line.size()));
    // pip takes the files that a requirements file includes from beside it, packages from where it
    // runs.
    for (const std::string& word : words_of(line)) {
      add_named(recipe, tree, fs::path(name).parent_path() / word, followed);
      if (word.starts_with('.')) add_named(recipe, tree, word, followed);
    }
  }
}

}  // namespace

std::string Recipe::key() const {
  std::string text = abi + '\0';
  const auto add = [&text](std::string_view kind, std::string_view value) {
    text += fmt::format("{}{}:{}", kind, value.size(), value);
  };
  for (const std::string& each : requirements) add("r", each);
  for (const std::string& line : install) add("i", line);
  for (const auto& [name, hash] : files) add("f", name + " " + hash);
  add("s", snapshot);
  if (!image.empty()) add("o", image);
  return to_hex(sha256(text)).substr(0, kKeyDigits);
}

std::vector<std::string> framework_requirements(const Spec& spec, std::string_view machine) {
  const std::string& version = spec.tensorflow.version;
  std::vector<std::string> requirements;
  // Older ones need what newer setuptools leave out.
  if (spec.tensorflow.tensorboard) requirements = {"tensorboard", "setuptools<81"};
  if (version.empty()) return requirements;
  const bool gpus = std::any_of(spec.roles.begin(), spec.roles.end(),
                                [](const RoleSpec& role) { return role.resources.gpus > 0; });
  int major = 0, minor = 0;
  const bool numbered = std::sscanf(version.c_str(), "%6d.%6d", &major, &minor) == 2;
  const bool brings_cuda = !numbered || major > 2 || (major == 2 && minor >= 14);
  std::string name = "tensorflow";
  if (gpus && brings_cuda) name += "[and-cuda]";
  if (!gpus && machine == "x86_64") name += "-cpu";
  requirements.insert(requirements.begin(), numbered ? name + "==" + version : name);
  return requirements;
}

Result<std::string> run_for_abi(const std::string& python, const Environment& inherited,
                                const std::string& host_name, int64_t limit_ms) {
  const auto answer = ask_program({python, "-c", kAskAbi}, inherited, limit_ms);
  if (!answer.ok() && answer.error().code == Code::ResourceExhausted) return answer.error();
  const std::string& said = answer.ok() ? answer->said : answer.error().message;
  if (answer.ok() && !said.empty() && said.find('\n') == std::string::npos && said.find("-") != std::string::npos) {
    return said;
  }
  return Error{Code::FailedPrecondition,
               fmt::format("{} on host {} does not run: {}", python, host_name,
                           said.substr(said.rfind('\n') + 1)),
               "mend it, or choose another with `python: PATH`"};
}

void add_named_files(Recipe& recipe, const fs::path& tree) {
  if (tree.empty()) return;
  std::set<fs::path> followed;
  fs::path here;   // where `cd` has led by now, in this line or one before
  for (const std::string& line : recipe.install) {
    bool leads = false;
    for (const std::string& word : words_of(line)) {
      add_named(recipe, tree, word, followed);
      if (!here.empty()) add_named(recipe, tree, here / word, followed);
      if (leads) here /= word;
      leads = word == "cd";
    }
  }
}

Recipe recipe_in_image(const std::string& image, const Spec& spec, const fs::path& tree) {
  Recipe recipe;
  recipe.image = image;
  recipe.install = spec.install;
  add_named_files(recipe, tree);
  return recipe;
}

Result<Recipe> recipe_of(const Spec& spec, const PythonChoice& choice, const Environment& inherited,
                         const fs::path& tree, const std::string& host_name) {
  Recipe recipe;
  recipe.install = spec.install;
  for (const char* name : {"python", "python3"}) {
    if (recipe.python.empty()) recipe.python = find_program(search_path(choice, inherited), name);
  }
  if (recipe.python.empty()) {
    return Error{
        Code::FailedPrecondition,
        fmt::format("host {} has no python3, and this experiment's environment is made with "
                    "one",
                    host_name),
        "install it there, or name one with `python: PATH`"};
  }
  TRY(recipe.abi, ask_abi(recipe.python, inherited, host_name));
  recipe.requirements = framework_requirements(spec, machine());
  add_named_files(recipe, tree);
  return recipe;
}

}  // namespace dtrain::runner
