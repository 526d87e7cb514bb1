#include "runner/python.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace dtrain::runner {
namespace {
namespace fs = std::filesystem;

struct Scene {
  Scene() {
    std::string name = (fs::temp_directory_path() / "dtrain-python-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    root = name;
  }
  ~Scene() {
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

TEST_CASE("where only python3 exists, python is found last") {
  Scene scene;
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
  Scene scene;
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
  Scene scene;
  scene.program("opt/bin/python3.12");
  CHECK(scene.choose((scene.root / "opt/bin/python3.12").string())->path_first ==
        std::vector{(scene.root / "opt/bin").string()});
  CHECK(!scene.choose((scene.root / "opt/bin/python3.13").string()).ok());
  scene.program("miniconda3/envs/vision/bin/python");
  const auto conda = scene.choose("conda:vision");
  REQUIRE(conda.ok());
  CHECK(conda->variables.at("CONDA_PREFIX") == (scene.root / "miniconda3/envs/vision").string());
  CHECK(!scene.choose("conda:audio").ok());
}

}  // namespace
}  // namespace dtrain::runner
