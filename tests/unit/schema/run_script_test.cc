#include "schema/run_script.h"

#include <doctest/doctest.h>

namespace dtrain {

TEST_CASE("a plain command replaces the shell, so that signals reach the program") {
  CHECK(run_script({"python train.py --lr 0.1"}) == "exec python train.py --lr 0.1");
  CHECK(run_script({"  ./train \"a b\" 'c;d' > log 2>&1\n"}) ==
        "exec ./train \"a b\" 'c;d' > log 2>&1");
  CHECK(run_script({"python -c 'import os; print(1)'"}) ==
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
  CHECK(run_script({"cd src", "echo 'it''s'", "python train.py"}) ==
        "eval 'cd src'\n"
        "case $? in 0) ;; *) exit $? ;; esac\n"
        "eval 'echo '\\''it'\\'''\\''s'\\'''\n"
        "case $? in 0) ;; *) exit $? ;; esac\n"
        "exec python train.py");
}

TEST_CASE("a last line that calls what an earlier one defined stays with the shell") {
  const auto last_line = [](const std::string& earlier, const std::string& last) {
    const std::string script = run_script({earlier, last});
    return script.substr(script.rfind('\n') + 1);
  };
  for (const char* earlier : {"f() { echo fn \"$@\"; }", "true; f ( ) { :; }", "function f { :; }", "alias f=cat", "eval 'f() { :; }'"}) {
    CAPTURE(earlier);
    CHECK(last_line(earlier, "f 1 2") == "f 1 2");
  }
  for (const char* earlier : {"f 1", "ff() { :; }", "./f (a)", "echo f; (a)", "unset f", "--f=1"}) {
    CAPTURE(earlier);
    CHECK(last_line(earlier, "f 1 2") == "exec f 1 2");
  }
  CHECK(last_line("cd /", "let x=1") == "let x=1");
}

}  // namespace dtrain
