#include "runner/python.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

namespace dtrain::runner {
namespace {
namespace fs = std::filesystem;

struct PythonScene {
  PythonScene() {
    std::string name = (fs::temp_directory_path() / "dtrain-python-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    root = name;
  }
  ~PythonScene() {
    std::error_code ignored;
    fs::remove_all(root, ignored);
  }
  void program(const fs::path& relative) const {
    fs::create_directories((root / relative).parent_path());
    std::ofstream(root / relative) << "#!/bin/sh\n";
    fs::permissions(root / relative, fs::perms::owner_all);
  }
  Result<PythonChoice> choose(const std::string& wanted, const Environment& user_env = {}) const {
    return choose_python(wanted, user_env,
                         {{"PATH", (root / "bin").string()}, {"HOME", root.string()}},
                         root / "runner");
  }
  fs::path root;
};

// What the program prints with -V.
std::string said_by(const std::string& program) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen((program + " -V").c_str(), "r"), ::pclose);
  REQUIRE(pipe != nullptr);
  std::string said(4096, '\0');
  said.resize(std::fread(said.data(), 1, said.size(), pipe.get()));
  return said;
}

TEST_CASE("where only python3 exists, python is found last") {
  PythonScene scene;
  scene.program("bin/python3");
  const auto choice = scene.choose("auto");
  REQUIRE(choice.ok());
  REQUIRE(choice->path_last.size() == 1);
  CHECK(fs::read_symlink(fs::path(choice->path_last[0]) / "python") == scene.root / "bin/python3");
  CHECK(scene.choose("auto").ok());  // the link is there already
  scene.program("bin/python");
  CHECK(scene.choose("auto")->path_last.empty());
}

TEST_CASE("auto takes the environment that was active at submit, or refuses by name") {
  PythonScene scene;
  const Environment active = {{"VIRTUAL_ENV", (scene.root / "venv").string()}};
  const auto missing = scene.choose("auto", active);
  REQUIRE(!missing.ok());
  CHECK(missing.error().message.ends_with("/venv, is not there"));
  CHECK(missing.error().code == Code::NotFound);
  scene.program("venv/bin/python");
  const auto found = scene.choose("auto", active);
  REQUIRE(found.ok());
  CHECK(found->path_first == std::vector{(scene.root / "venv/bin").string()});
  CHECK(found->variables.at("VIRTUAL_ENV") == (scene.root / "venv").string());
}

TEST_CASE("a path is an interpreter or an environment, conda goes by name") {
  PythonScene scene;
  scene.program("opt/bin/python3");
  fs::create_symlink("python3", scene.root / "opt/bin/python");
  CHECK(scene.choose((scene.root / "opt/bin/python3").string())->path_first ==
        std::vector{(scene.root / "opt/bin").string()});
  CHECK(!scene.choose((scene.root / "opt/bin/python3.13").string()).ok());
  scene.program("miniconda3/envs/vision/bin/python");
  const auto conda = scene.choose("conda:vision");
  REQUIRE(conda.ok());
  CHECK(conda->variables.at("CONDA_PREFIX") == (scene.root / "miniconda3/envs/vision").string());
  CHECK(!scene.choose("conda:audio").ok());
}

TEST_CASE("an interpreter is found as python and python3, whatever else lies beside it") {
  PythonScene scene;
  for (const char* name : {"python3.12", "python3.13", "pip"}) scene.program(fs::path("opt/bin") / name);
  SUBCASE("without a plain one") {}
  SUBCASE("with one that is another") {
    fs::create_symlink("python3.13", scene.root / "opt/bin/python3");
    fs::create_symlink("python3", scene.root / "opt/bin/python");
  }
  const fs::path wanted = scene.root / "opt/bin/python3.12";
  std::ofstream(wanted) << "#!/bin/sh\necho $0 $1\n";
  for (int i = 0; i < 2; ++i) {
    const auto choice = scene.choose(wanted.string());
    REQUIRE(choice.ok());
    const std::string path = fmt::format("{}", fmt::join(choice->path_first, ":"));
    for (const char* name : {"python", "python3"}) CHECK(said_by(find_program(path, name)) == wanted.string() + " -V\n");
    CHECK(find_program(path, "pip") == (scene.root / "opt/bin/pip").string());
  }
}

TEST_CASE("a name is that of a program in PATH") {
  PythonScene scene;
  scene.program("bin/python3.12");
  const auto choice = scene.choose("python3.12");
  REQUIRE(choice.ok());
  CHECK(choice->path_first.back() == (scene.root / "bin").string());
  CHECK(scene.choose("python3.13").error().message == "python python3.13 is not there");
  CHECK(scene.choose("python3.13").error().code == Code::NotFound);
}

}  // namespace
}  // namespace dtrain::runner
