#include "cli/table.h"

#include <doctest/doctest.h>

using namespace dtrain::cli;

namespace {

Table sample() {
  Table table;
  table.columns = {{"ID", 6}, {"PROJECT", 10, 2}, {"STATE", 8}, {"REASON", 0, 1, true}};
  table.rows = {{{"4"}, {"ai-toaster"}, {"RUNNING", Ink::Green}, {"a reason that is long"}},
                {{"17"}, {"x"}}};
  return table;
}

}  // namespace

TEST_CASE("cells are left-justified and no line ends in blanks") {
  CHECK(render(sample(), {}) ==
        "ID     PROJECT    STATE    REASON\n"
        "4      ai-toaster RUNNING  a reason that is long\n"
        "17     x\n");
}

TEST_CASE("a narrow screen cuts what may be cut, then drops columns in order") {
  CHECK(render(sample(), {true, false, 40, 24}) ==
        "ID     PROJECT    STATE    REASON\n"
        "4      ai-toaster RUNNING  a reason t...\n"
        "17     x\n");
  CHECK(render(sample(), {true, false, 30, 24}) ==
        "ID     PROJECT    STATE\n"
        "4      ai-toaster RUNNING\n"
        "17     x\n");
  CHECK(render(sample(), {true, false, 20, 24}) ==
        "ID     STATE\n"
        "4      RUNNING\n"
        "17\n");
}

TEST_CASE("what is too wide all the same loses empty columns first, and its last ones at the end") {
  Table table = sample();
  for (auto& row : table.rows) row.resize(3);
  CHECK(render(table, {true, false, 30, 24}) ==
        "ID     PROJECT    STATE\n"
        "4      ai-toaster RUNNING\n"
        "17     x\n");
  CHECK(render(table, {true, false, 10, 24}) ==
        "ID\n"
        "4\n"
        "17\n");
}

TEST_CASE("what is cut last keeps its room until there is nothing to drop") {
  Table table = sample();
  table.columns.back() = {"A-LONG-TITLE", 0, 0, true, true};
  CHECK(render(table, {true, false, 34, 24}) ==
        "ID     STATE    A-LONG-TITLE\n"
        "4      RUNNING  a reason that i...\n"
        "17\n");
  CHECK(render(table, {true, false, 24, 24}) ==
        "ID     STATE    A-LON...\n"
        "4      RUNNING  a rea...\n"
        "17\n");
}

TEST_CASE("colours are only for screens that have them, and take no room") {
  Table table;
  table.columns = {{"STATE", 8}, {"X"}};
  table.rows = {{{"FAILED", Ink::Red}, {"1"}}};
  CHECK(render(table, {true, true, 80, 24}) ==
        "\x1b[1mSTATE\x1b[0m    \x1b[1mX\x1b[0m\n\x1b[31mFAILED\x1b[0m   1\n");
}

TEST_CASE("wide characters take two columns; control characters none of the table's order") {
  Table table;
  table.columns = {{"N", 6}, {"X"}};
  table.rows = {{{"日本"}, {"a\nb"}}, {{"gr\xc3\xbc"}, {"\x1b[2J"}}};
  CHECK(render(table, {}) ==
        "N      X\n"
        "日本   a b\n"
        "gr\xc3\xbc    "
        " [2J\n");
}
