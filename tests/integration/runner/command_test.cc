// What the shell makes of our scripts.
#include "runner/command.h"

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <cstdio>

namespace dtrain::runner {
namespace {

struct ShellOutput {
  int code = 0;
  std::string out;
};

ShellOutput run_lines(const std::vector<std::string>& lines) {
  const std::vector<std::string> argv = shell_command(lines);
  REQUIRE(argv.front() == "/bin/sh");  // which popen() takes, too
  std::FILE* pipe = popen(argv.back().c_str(), "r");
  REQUIRE(pipe != nullptr);
  ShellOutput ran;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) ran.out += static_cast<char>(c);
  ran.code = WEXITSTATUS(pclose(pipe));
  return ran;
}

TEST_CASE("the first line that fails ends it, with its code") {
  const ShellOutput ran = run_lines({"echo one", "(exit 5)", "echo two"});
  CHECK(ran.code == 5);
  CHECK(ran.out == "one\n");
  CHECK(run_lines({"echo one", "exit 6", "echo two"}).code == 6);
}

TEST_CASE("what one line sets the next one has") {
  const ShellOutput ran = run_lines({"A=5", "cd /", "echo $A $PWD"});
  CHECK(ran.code == 0);
  CHECK(ran.out == "5 /\n");
}

TEST_CASE("the last line may call what an earlier one defined") {
  CHECK(run_lines({"f() { echo fn \"$@\"; }", "f 1 2"}).out == "fn 1 2\n");
  CHECK(run_lines({"alias g='echo aliased'", "g 1"}).out == "aliased 1\n");
}

TEST_CASE("set -e in a text of several lines counts, there and in those that follow") {
  const ShellOutput ran = run_lines({"set -e\necho one\n(exit 5)\necho two", "echo three"});
  CHECK(ran.code == 5);
  CHECK(ran.out == "one\n");
  CHECK(run_lines({"set -e", "(exit 5)\ntrue"}).code == 5);
}

}  // namespace
}  // namespace dtrain::runner
