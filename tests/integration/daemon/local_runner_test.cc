#include "daemon/local_runner.h"

#include <doctest/doctest.h>

#include <array>
#include <cstdio>

#include "tests/support/project.h"
#include "tests/support/skipped.h"

namespace dtrain {
namespace {

TEST_CASE("a runner that started when no descriptor was free is seen to end") {
#ifdef __SANITIZE_ADDRESS__
  return tests::say_skipped("the sanitizer looks at memory through a pipe, and there is none");
#endif
  const test::TemporaryFolder folder;
  std::filesystem::create_directories(folder / "runner");
  const std::string command = std::string(BIN_DIR "/local_runner_program ") + folder.path().string();
  FILE* output = ::popen(command.c_str(), "r");
  REQUIRE(output != nullptr);
  std::array<char, 100> line = {};
  const char* read = std::fgets(line.data(), line.size(), output);
  CHECK(::pclose(output) == 0);
  REQUIRE(read != nullptr);
  CHECK(std::string(line.data()) == "ended\n");
}

}  // namespace
}  // namespace dtrain
