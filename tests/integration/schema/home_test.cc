#include "schema/home.h"

#include <doctest/doctest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "tests/support/skipped.h"
#include "tests/support/variable.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

class Scratch {
 public:
  Scratch() {
    std::string pattern = fs::temp_directory_path() / "dtrain-home-XXXXXX";
    path_ = fs::canonical(mkdtemp(pattern.data()));
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

TEST_CASE("a home is made for its owner alone, with its parents") {
  const Scratch scratch;
  const auto home = open_home(scratch.path() / "a" / "b/");
  REQUIRE(home.ok());
  CHECK(home.value().root == scratch.path() / "a" / "b");
  CHECK(home.value().socket() == scratch.path() / "a" / "b" / "socket");
  struct stat info {};
  REQUIRE(stat(home.value().root.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0700);
}

TEST_CASE("one home has one socket, whatever way leads to it") {
  const Scratch scratch;
  const auto home = open_home(scratch.path() / "real");
  fs::create_symlink(scratch.path() / "real", scratch.path() / "link");
  CHECK(open_home(scratch.path() / "link").value().socket() == home.value().socket());
  CHECK(open_home(scratch.path() / "x" / ".." / "real").value().root == home.value().root);
}

TEST_CASE("a socket whose path is too long moves to the run time directory") {
  const Scratch scratch;
  const test::Variable runtime("XDG_RUNTIME_DIR", scratch.path());
  const auto home = open_home(scratch.path() / std::string(120, 'x'));
  REQUIRE(home.ok());
  const fs::path socket = home.value().socket();
  CHECK(socket.native().size() <= 107);
  CHECK(socket.parent_path().parent_path() == scratch.path());
  CHECK(socket == open_home(scratch.path() / std::string(120, 'x')).value().socket());
  CHECK(socket != open_home(scratch.path() / std::string(120, 'y')).value().socket());
}

TEST_CASE("so does one whose path has what gRPC splits or reads otherwise") {
  const Scratch scratch;
  const test::Variable runtime("XDG_RUNTIME_DIR", scratch.path());
  for (const char* const name : {"a,b", "a%20b", "a#1", "a?b"}) {
    CAPTURE(name);
    const auto home = open_home(scratch.path() / name);
    REQUIRE(home.ok());
    CHECK(home->root == scratch.path() / name);
    CHECK(home->socket().parent_path().parent_path() == scratch.path());
  }
}

TEST_CASE("what is no directory, or not ours, is refused with what to do") {
  const Scratch scratch;
  std::ofstream(scratch.path() / "file") << "";
  const auto file = open_home(scratch.path() / "file");
  REQUIRE(!file.ok());
  CHECK(file.error().message == (scratch.path() / "file").string() + " is not a directory");
  CHECK(!file.error().hint.empty());
  const auto below = open_home(scratch.path() / "file" / "x");
  REQUIRE(!below.ok());
  CHECK(below.error().code == Code::FailedPrecondition);
  CHECK(below.error().message.ends_with("Not a directory"));
  if (geteuid() == 0) {
    fs::create_directory(scratch.path() / "theirs");
    REQUIRE(chown((scratch.path() / "theirs").c_str(), 65534, 65534) == 0);
    const auto theirs = open_home(scratch.path() / "theirs");
    REQUIRE(!theirs.ok());
    CHECK(theirs.error().code == Code::PermissionDenied);
    CHECK(theirs.error().message.find("belongs to") != std::string::npos);
  } else {
    dtrain::tests::say_left_out("a home of somebody else: only root can make one");
  }
}

TEST_CASE("a relative DTRAIN_HOME is refused: every directory would be a home of its own") {
  const test::Variable named("DTRAIN_HOME", "here/dtrain");
  const auto home = home_from_environment();
  REQUIRE(!home.ok());
  CHECK(home.error().code == Code::InvalidArgument);
  CHECK(home.error().message == "DTRAIN_HOME is a relative path: 'here/dtrain'");
}

TEST_CASE("the environment names it: DTRAIN_HOME, else XDG_STATE_HOME, else HOME") {
  const Scratch scratch;
  const test::Variable home("HOME", scratch.path() / "home");
  const test::Variable named("DTRAIN_HOME", "");
  {
    const test::Variable state("XDG_STATE_HOME", "relative");  // invalid, so it counts as unset
    CHECK(home_from_environment().value().root ==
          scratch.path() / "home" / ".local" / "state" / "dtrain");
  }
  const test::Variable state("XDG_STATE_HOME", scratch.path() / "state");
  CHECK(home_from_environment().value().root == scratch.path() / "state" / "dtrain");
  const test::Variable given("DTRAIN_HOME", scratch.path() / "mine");
  CHECK(home_from_environment().value().root == scratch.path() / "mine");
}

}  // namespace
}  // namespace dtrain
