#include "runner/python.h"

#include <string_view>

#include "runner/program_path.h"
#include "schema/shell_words.h"
#include "schema/small_file.h"
#include "schema/sha256.h"

namespace dtrain::runner {
namespace fs = std::filesystem;
namespace {

constexpr size_t kShimDigits = 16;

std::string value_of(const Environment& env, const std::string& name) {
  const auto found = env.find(name);
  return found == env.end() ? std::string() : found->second;
}

bool has_python(const fs::path& environment) {
  return is_program(environment / "bin/python") || is_program(environment / "bin/python3");
}

Error missing(const std::string& what) {
  return {
      Code::NotFound, fmt::format("{} is not there", what),
      "make it there by the same path, or set `python: PATH` or `python: auto` with none active"};
}

PythonChoice environment_at(const fs::path& root, const std::string& variable) {
  PythonChoice choice;
  choice.path_first.push_back((root / "bin").string());
  choice.variables[variable] = root.string();
  return choice;
}

std::string variable_for(const fs::path& root) {
  return fs::exists(root / "conda-meta") ? "CONDA_PREFIX" : "VIRTUAL_ENV";
}

Result<PythonChoice> conda_environment(const std::string& name, const Environment& user_env,
                                       const Environment& inherited) {
  std::vector<fs::path> roots;
  if (const std::string active = value_of(user_env, "CONDA_PREFIX"); !active.empty()) {
    const fs::path path = active;
    roots.push_back(path.parent_path().filename() == "envs" ? path.parent_path().parent_path()
                                                            : path);
  }
  const fs::path home = value_of(inherited, "HOME");
  for (const char* folder : {".conda", "miniconda3", "anaconda3", "miniforge3", "mambaforge"}) {
    if (!home.empty()) roots.push_back(home / folder);
  }
  roots.emplace_back("/opt/conda");
  roots.emplace_back("/opt/miniconda3");
  for (const fs::path& root : roots) {
    const fs::path candidate = name == "base" ? root : root / "envs" / name;
    if (has_python(candidate)) return environment_at(candidate, "CONDA_PREFIX");
  }
  return missing("conda environment " + name);
}

// `python` for hosts that have only python3, made once.
Status link_python(const fs::path& directory, const std::string& python3) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) return errno_error(fmt::format("make {}", directory.string()), error.value());
  const fs::path link = directory / "python";
  if (fs::read_symlink(link, error) == python3) return ok();
  const fs::path fresh = directory / "python.new";
  fs::remove(fresh, error);
  fs::create_symlink(python3, fresh, error);
  if (!error) fs::rename(fresh, link, error);
  if (error) return errno_error(fmt::format("link {}", link.string()), error.value());
  return ok();
}

// A program that runs another under that one's own name, which some go by. Made once.
Status write_shim(const fs::path& shim, const fs::path& program) {
  const std::string text = fmt::format("#!/bin/sh\nexec {} \"$@\"\n", shell_quoted(program.string()));
  if (read_small_file(shim) == text) return ok();
  std::error_code error;
  fs::create_directories(shim.parent_path(), error);
  if (error) return errno_error(fmt::format("make {}", shim.parent_path().string()), error.value());
  const fs::path fresh = shim.string() + ".new";
  TRY(write_file(fresh, text));
  fs::permissions(fresh, fs::perms(0755), error);
  if (!error) fs::rename(fresh, shim, error);
  if (error) return errno_error(fmt::format("make {}", shim.string()), error.value());
  return ok();
}

// What else is called `python` there, or further on in PATH, is not what was asked for.
Result<PythonChoice> interpreter_at(const fs::path& path, const fs::path& shims) {
  PythonChoice choice;
  const fs::path folder = path.parent_path();
  const fs::path own = shims / to_hex(sha256(path.string())).substr(0, kShimDigits);
  for (const char* name : {"python", "python3"}) {
    std::error_code error;
    if (fs::equivalent(folder / name, path, error) && !error) continue;
    TRY(write_shim(own / name, path));
    choice.path_first = {own.string()};
  }
  choice.path_first.push_back(folder.string());
  return choice;
}

// A path, or the name of a program that is found as in a shell.
Result<PythonChoice> python_at(const std::string& wanted, const Environment& inherited, const fs::path& shims) {
  const bool is_name = wanted.find('/') == std::string::npos;
  const fs::path path = is_name ? find_program(value_of(inherited, "PATH"), wanted) : wanted;
  if (path.empty()) return missing("python " + wanted);
  if (has_python(path)) return environment_at(path, variable_for(path));
  if (!is_program(path)) return missing("python " + wanted);
  const fs::path root = path.parent_path().parent_path();
  if (path.parent_path().filename() == "bin" && fs::exists(root / "pyvenv.cfg")) {
    return environment_at(root, "VIRTUAL_ENV");
  }
  return interpreter_at(path, shims);
}

}  // namespace

std::string find_program(const std::string& search_path, const std::string& program) {
  std::string_view rest = search_path;
  while (!rest.empty()) {
    const size_t colon = rest.find(':');
    const std::string_view directory = rest.substr(0, colon);
    if (!directory.empty()) {
      const fs::path candidate = fs::path(directory) / program;
      if (is_program(candidate)) return candidate.string();
    }
    rest = colon == std::string_view::npos ? std::string_view() : rest.substr(colon + 1);
  }
  return {};
}

Result<PythonChoice> choose_python(const std::string& wanted, const Environment& user_env,
                                   const Environment& inherited, const fs::path& home) {
  if (wanted.starts_with("conda:")) {
    return conda_environment(wanted.substr(6), user_env, inherited);
  }
  if (!wanted.empty() && wanted != "auto") return python_at(wanted, inherited, home / "shims");

  // An active venv hides conda's base, as it does in the shell it was active in.
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const std::string root = value_of(user_env, variable);
    if (root.empty()) continue;
    if (!has_python(root)) {
      return missing(fmt::format("the {} active at submit, {},", variable, root));
    }
    return environment_at(root, variable);
  }

  PythonChoice choice;
  const std::string search_path = value_of(inherited, "PATH");
  if (find_program(search_path, "python").empty()) {
    if (const std::string python3 = find_program(search_path, "python3"); !python3.empty()) {
      const fs::path shim = home / "shims";
      TRY(link_python(shim, python3));
      choice.path_last.push_back(shim.string());
    }
  }
  return choice;
}

}  // namespace dtrain::runner
