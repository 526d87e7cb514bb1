#include "runner/command.h"

#include <doctest/doctest.h>

namespace dtrain::runner {
namespace {

TEST_CASE("a plain command replaces the shell, so that signals reach the program") {
  CHECK(shell_command({"python train.py --lr 0.1"}).back() == "exec python train.py --lr 0.1");
  CHECK(shell_command({"  ./train \"a b\" 'c;d' > log 2>&1\n"}).back() ==
        "exec ./train \"a b\" 'c;d' > log 2>&1");
  CHECK(shell_command({"python -c 'import os; print(1)'"}).back() ==
        "exec python -c 'import os; print(1)'");
}

TEST_CASE("what only a shell can do stays with the shell") {
  for (const char* line : {"a && b",
                           "a | b",
                           "a; b",
                           "a &",
                           "(a)",
                           "X=1 python t.py",
                           "cd src",
                           "exit 3",
                           "export A=b",
                           "for i in 1 2; do echo $i; done",
                           "a\nb",
                           "cat <<EOF\nx\nEOF",
                           "$PROGRAM x",
                           "\"my program\"",
                           "echo hi",
                           "a `b`",
                           "f() { true; }",
                           "! a",
                           "python 'unterminated",
                           ""}) {
    CAPTURE(line);
    CHECK(!is_plain_command(line));
  }
}

TEST_CASE("several lines run in order in one shell, each on its own") {
  const auto argv = shell_command({"cd src", "echo 'it''s'", "python train.py"});
  REQUIRE(argv.size() == 3);
  CHECK(argv[0] == "/bin/sh");
  CHECK(argv[1] == "-c");
  CHECK(argv[2] ==
        "eval 'cd src'\n"
        "case $? in 0) ;; *) exit $? ;; esac\n"
        "eval 'echo '\\''it'\\'''\\''s'\\'''\n"
        "case $? in 0) ;; *) exit $? ;; esac\n"
        "exec python train.py");
}

}  // namespace
}  // namespace dtrain::runner
