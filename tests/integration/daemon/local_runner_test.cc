#include "daemon/local_runner.h"

#include <doctest/doctest.h>

#include <array>
#include <cstdio>

#include "tests/support/project.h"
#include "tests/support/skipped.h"

namespace dtrain {
namespace {

// What local_runner_program says.
std::string said(const std::string& arguments) {
  FILE* output = ::popen(("'" BIN_DIR "/local_runner_program' " + arguments).c_str(), "r");
  REQUIRE(output != nullptr);
  std::array<char, 100> line = {};
  const char* read = std::fgets(line.data(), line.size(), output);
  CHECK(::pclose(output) == 0);
  REQUIRE(read != nullptr);
  return line.data();
}

TEST_CASE("a runner that started when no descriptor was free is seen to end") {
#ifdef __SANITIZE_ADDRESS__
  return tests::say_skipped("the sanitizer looks at memory through a pipe, and there is none");
#endif
  const test::TemporaryFolder folder;
  std::filesystem::create_directories(folder / "runner");
  CHECK(said(folder.path().string()) == "ended\n");
}

TEST_CASE("a runner of an earlier daemon that hangs and never dials is replaced") {
  const test::TemporaryFolder folder;
  std::filesystem::create_directories(folder / "runner");
  CHECK(said(folder.path().string() + " adopt") == "ended\n");
}

TEST_CASE("a runner of ours that hangs before it says anything is replaced") {
  const test::TemporaryFolder folder;
  std::filesystem::create_directories(folder / "runner");
  CHECK(said(folder.path().string() + " hang") == "ended\n");
}

TEST_CASE("a runner whose stream ended and that does not dial again is replaced") {
  const test::TemporaryFolder folder;
  std::filesystem::create_directories(folder / "runner");
  CHECK(said(folder.path().string() + " leave") == "ended\n");
}

TEST_CASE("the local runner is in when it is, and not when another host is") {
  const test::TemporaryFolder folder;
  const Home home{folder.path(), folder / "socket"};
  std::filesystem::create_directories(home.runner());
  test::write_file(home.runner() / "host-id", "own\n");
  boost::asio::io_context loop;
  daemon::LocalRunner runner(loop, home, Config{});
  int joined = 0;
  runner.on_joined = [&] { ++joined; };
  runner.connected({"another"});
  CHECK(joined == 0);
  runner.connected({"own"});
  CHECK(joined == 1);
}

}  // namespace
}  // namespace dtrain
