#include "runner/recipe.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "schema/fd.h"
#include "tests/support/project.h"

namespace dtrain::runner {
namespace {

namespace fs = std::filesystem;

const Environment kEnvironment = {{"PATH", "/usr/bin:/bin"}};

// A python by name, that is this script.
std::string python(const test::TemporaryFolder& folder, const std::string& script) {
  const fs::path path = folder / "python3";
  test::write_file(path, "#!/bin/sh\n" + script + "\n");
  fs::permissions(path, fs::perms::owner_all);
  return path.string();
}

TEST_CASE("a python says what it is, or what is wrong with it") {
  const test::TemporaryFolder folder;
  const auto ask = [&](const std::string& script) {
    return run_for_abi(python(folder, script), kEnvironment, "here", 60'000);
  };
  CHECK(ask("echo cpython-311-x86_64-linux-gnu /usr").value() == "cpython-311-x86_64-linux-gnu /usr");
  const auto broken = ask("echo Traceback; echo no module >&2; exit 1");
  REQUIRE(!broken.ok());
  CHECK(broken.error().code == Code::FailedPrecondition);
  CHECK(broken.error().message == (folder / "python3").string() + " on host here does not run: no module");
  const auto none = run_for_abi((folder / "none").string(), kEnvironment, "here", 60'000);
  REQUIRE(!none.ok());
  CHECK(none.error().code == Code::FailedPrecondition);
}

TEST_CASE("a python that never answers is ended, with what it started") {
  const test::TemporaryFolder folder;
  const fs::path gate = folder / "gate";
  REQUIRE(::mkfifo(gate.c_str(), 0600) == 0);
  const Fd held(::open(gate.c_str(), O_RDONLY | O_NONBLOCK));
  const auto asked = run_for_abi(
      python(folder, "exec 9>" + gate.string() + "; sleep 1000 & sleep 1000"), kEnvironment, "here", 200);
  REQUIRE(!asked.ok());
  CHECK(asked.error().code == Code::FailedPrecondition);
  CHECK(asked.error().message.ends_with("does not run: no answer in 0 s"));
  // Nobody has the other end any more.
  REQUIRE(::fcntl(held.get(), F_SETFL, 0) == 0);
  char byte;
  CHECK(::read(held.get(), &byte, 1) == 0);
}

}  // namespace
}  // namespace dtrain::runner
