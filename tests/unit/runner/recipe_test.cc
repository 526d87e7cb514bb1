#include "runner/recipe.h"

#include <doctest/doctest.h>

#include "schema/sha256.h"
#include "tests/support/project.h"

namespace dtrain::runner {
namespace {

using test::TemporaryFolder;
using test::write_file;

Recipe recipe(std::vector<std::string> install, const std::filesystem::path& tree) {
  Recipe made;
  made.abi = "cpython-311-x86_64-linux-gnu /usr";
  made.install = std::move(install);
  add_named_files(made, tree);
  return made;
}

std::vector<std::string> names(const Recipe& recipe) {
  std::vector<std::string> found;
  for (const auto& [name, hash] : recipe.files) found.push_back(name);
  return found;
}

using Names = std::vector<std::string>;

TEST_CASE("the key follows what goes into an environment, and nothing else") {
  const TemporaryFolder folder;
  write_file(folder / "requirements.txt", "numpy\n");
  write_file(folder / "train.py", "print(1)\n");
  const std::vector<std::string> lines = {"pip install -r requirements.txt"};
  const std::string key = recipe(lines, folder.path()).key();
  CHECK(key.size() == 16);

  write_file(folder / "train.py", "print(2)\n");
  CHECK(recipe(lines, folder.path()).key() == key);

  Recipe other = recipe(lines, folder.path());
  other.abi = "cpython-312-x86_64-linux-gnu /usr";
  CHECK(other.key() != key);
  other = recipe(lines, folder.path());
  other.requirements = {"tensorflow-cpu==2.15.0"};
  CHECK(other.key() != key);
  other = recipe({"pip install -r requirements.txt", "true"}, folder.path());
  CHECK(other.key() != key);
  other = recipe(lines, folder.path());
  other.python = "/elsewhere/python";  // how it was found says nothing
  CHECK(other.key() == key);

  write_file(folder / "requirements.txt", "numpy<2\n");
  CHECK(recipe(lines, folder.path()).key() != key);
}

TEST_CASE("the files that install lines name are found, with what those include") {
  const TemporaryFolder folder;
  write_file(folder / "requirements.txt", "numpy # a comment -r no.txt\n-r more/base.txt\n");
  write_file(folder / "more/base.txt", "-c pins.txt\nsix\n");
  write_file(folder / "more/pins.txt", "six==1.16.0\n");
  write_file(folder / "no.txt", "");
  write_file(folder / "x.whl", "wheel");
  write_file(folder / "setup.sh", "make");
  const auto named = [&](const std::string& line) { return names(recipe({line}, folder.path())); };
  const Names all = {"more/base.txt", "more/pins.txt", "requirements.txt"};
  CHECK(named("pip install -r requirements.txt") == all);
  CHECK(named("pip install -rrequirements.txt") == all);
  CHECK(named("python3 -m pip install --requirement='./requirements.txt'") == all);
  CHECK(named("pip install ./x.whl && sh setup.sh") == Names{"setup.sh", "x.whl"});
  CHECK(named("pip install numpy").empty());
  CHECK(named("pip install /etc/passwd ../../etc/passwd").empty());
}

TEST_CASE("what is included counts wherever the line that includes it lies") {
  const TemporaryFolder folder;
  write_file(folder / "sub/requirements.txt", "-r ../common.txt\n");
  write_file(folder / "common.txt", "six\n");
  const Names both = {"common.txt", "sub/requirements.txt"};
  CHECK(names(recipe({"pip install -r sub/requirements.txt"}, folder.path())) == both);
  CHECK(names(recipe({"cd sub && pip install -r requirements.txt"}, folder.path())) == both);
  CHECK(names(recipe({"cd ./sub", "pip install -r requirements.txt"}, folder.path())) == both);
  CHECK(names(recipe({"pip install ./sub", "pip install -r sub/requirements.txt"}, folder.path())) == both);
}

TEST_CASE("a directory that an install line names stands for all that is in it") {
  const TemporaryFolder folder;
  write_file(folder / "setup.py", "");
  write_file(folder / "src/deep/a.py", "");
  for (const char* line : {"pip install .", "pip install -e .", "pip install '.[dev]'"}) {
    CAPTURE(line);
    CHECK(recipe({line}, folder.path()).snapshot == folder.path().filename());
  }
  for (const char* line :
       {"make -C src", "pip install file:src", "pip install --find-links ./src/ x"}) {
    CAPTURE(line);
    CHECK(names(recipe({line}, folder.path())) == Names{"src/deep/a.py"});
  }
  CHECK(recipe({"pip install src-x"}, folder.path()).snapshot.empty());
  CHECK(recipe({"pip install ."}, {}).snapshot.empty());
}

TEST_CASE("TensorFlow comes without CUDA for those who ask for no GPU, where that exists") {
  Spec spec;
  spec.roles = {{Role::Train, 1, {}, {"x"}, OnFailure::Fail}};
  CHECK(framework_requirements(spec, "x86_64").empty());
  spec.tensorflow.version = "2.15.0";
  CHECK(framework_requirements(spec, "x86_64") == Names{"tensorflow-cpu==2.15.0"});
  CHECK(framework_requirements(spec, "aarch64") == Names{"tensorflow==2.15.0"});
  spec.roles.front().resources.gpus = 1;
  CHECK(framework_requirements(spec, "x86_64") == Names{"tensorflow[and-cuda]==2.15.0"});
  spec.tensorflow.version = "2.12.1";
  CHECK(framework_requirements(spec, "x86_64") == Names{"tensorflow==2.12.1"});
  spec.tensorflow.version = "latest";
  CHECK(framework_requirements(spec, "x86_64") == Names{"tensorflow[and-cuda]"});
  spec.roles.front().resources.gpus = 0;
  CHECK(framework_requirements(spec, "x86_64") == Names{"tensorflow-cpu"});
}

TEST_CASE("a python that doesn't run is named") {
  const TemporaryFolder folder;
  write_file(folder / "bin/python", "#!/bin/sh\necho it is broken\nexit 1\n");
  std::filesystem::permissions(folder / "bin/python", std::filesystem::perms::owner_all);
  PythonChoice choice;
  choice.path_first = {(folder / "bin").string()};
  const auto made = recipe_of({}, choice, {}, {}, "n1");
  REQUIRE(!made.ok());
  CHECK(made.error().code == Code::FailedPrecondition);
  CHECK(made.error().message.find("bin/python on host n1 does not run: it is broken") !=
        std::string::npos);
  choice.path_first.clear();
  const auto none = recipe_of({}, choice, {{"PATH", folder.path().string()}}, {}, "n1");
  REQUIRE(!none.ok());
  CHECK(none.error().message.find("has no python3") != std::string::npos);
}

}  // namespace
}  // namespace dtrain::runner
