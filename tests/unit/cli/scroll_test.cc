#include "cli/scroll.h"

#include <doctest/doctest.h>

using namespace dtrain::cli;

namespace {

constexpr Screen kScreen{true, false, 80, 6};
const std::string kText = "head\n1\n2\n3\n4\n5\n6\n7\n";

std::string drawn(Scroll& scroll) { return scroll.shown(kText, 1, 5, "keys", kScreen); }

}  // namespace

TEST_CASE("what has room is shown as it is, whatever is typed") {
  Scroll scroll;
  CHECK(scroll.shown(kText, 1, 8, "keys", kScreen) == kText);
  CHECK(!scroll.type("j\x1b[B\x1b[6~\x1b[F"));
  CHECK(scroll.shown(kText, 1, 8, "keys", kScreen) == kText);
}

TEST_CASE("of more lines than rows a part is shown below the head, and said which") {
  Scroll scroll;
  CHECK(drawn(scroll) == "head\n1\n2\n3\nlines 1-3 of 7; keys\n");
  CHECK(scroll.shown(kText, 1, 5, "keys", {true, false, 13, 6}) == "head\n1\n2\n3\nlines 1-3...\n");
}

TEST_CASE("a screen of very few rows shows lines that move before those that stay") {
  Scroll scroll;
  CHECK(scroll.shown(kText, 3, 3, "keys", kScreen) == "head\n1\nlines 1-1 of 7; keys\n");
  CHECK(scroll.shown(kText, 3, 2, "keys", kScreen) == "head\nlines 1-1 of 8; keys\n");
  CHECK(scroll.shown(kText, 3, 1, "keys", kScreen) == "head\n");
}

TEST_CASE("keys move by a line, by a part and to either end, and no further") {
  Scroll scroll;
  drawn(scroll);
  const auto first_after = [&](const char* keys) {
    scroll.type(keys);
    return drawn(scroll).substr(5, 1);
  };
  CHECK(first_after("k") == "1");
  CHECK(first_after("\x1b[B") == "2");
  CHECK(first_after("\x1bOB") == "3");
  CHECK(first_after("\x1b[A") == "2");
  CHECK(first_after("\x1b[6~") == "5");
  CHECK(first_after("j") == "5");
  CHECK(first_after("\x1b[6~\x1b[A") == "4");
  CHECK(first_after("\x1b[5~") == "1");
  for (const char* end : {"\x1b[F", "\x1bOF", "\x1b[4~", "\x1b[8~"}) {
    CHECK(first_after(end) == "5");
    CHECK(first_after("\x1b[5~\x1b[5~\x1b[5~") == "1");
  }
  for (const char* home : {"\x1b[H", "\x1bOH", "\x1b[1~", "\x1b[7~"}) {
    CHECK(first_after("j") == "2");
    CHECK(first_after(home) == "1");
  }
}

TEST_CASE("with fewer lines, or a higher screen, the last part moves up") {
  Scroll scroll;
  drawn(scroll);
  CHECK(scroll.type("\x1b[F"));
  CHECK(scroll.shown("head\n1\n2\n3\n4\n5\n", 1, 5, "keys", kScreen) == "head\n3\n4\n5\nlines 3-5 of 5; keys\n");
  CHECK(scroll.shown(kText, 1, 8, "keys", kScreen) == kText);
  CHECK(drawn(scroll) == "head\n1\n2\n3\nlines 1-3 of 7; keys\n");
}

TEST_CASE("a key may come in pieces, and what is none is passed over") {
  Scroll scroll;
  drawn(scroll);
  CHECK(!scroll.type("\x1b["));
  CHECK(scroll.type("B"));
  CHECK(!scroll.type("x\x1b[1;5C\xc3\xa4"));
  CHECK(!scroll.is_left());
  CHECK(!scroll.type("\x1b"));
  CHECK(!scroll.type("q"));   // Esc, then q
  CHECK(scroll.is_left());
}
