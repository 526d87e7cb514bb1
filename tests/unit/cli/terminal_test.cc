#include "cli/terminal.h"

#include <doctest/doctest.h>

using namespace dtrain::cli;

TEST_CASE("who says that they have no UTF-8 is shown none") {
  CHECK(is_ascii_locale("C", "", "de_DE.UTF-8"));
  CHECK(is_ascii_locale("", "POSIX", ""));
  CHECK(is_ascii_locale("", "", "de_DE.ISO-8859-1"));
  CHECK(!is_ascii_locale("", "", ""));
  CHECK(!is_ascii_locale("", "C.utf8", "C"));
  CHECK(!is_ascii_locale("en_US.UTF-8", "C", "C"));
  Screen screen;
  CHECK(as_drawn("├─ 4.1 ✓", screen) == "├─ 4.1 ✓");
  screen.ascii = true;
  CHECK(as_drawn("├─ 4.1 ● RUNNING ▁▃█\n╰─ 4.2 ✗ FAILED", screen) == "|- 4.1 * RUNNING .-@\n`- 4.2 x FAILED");
}

TEST_CASE("width counts columns and not bytes") {
  CHECK(display_width("") == 0);
  CHECK(display_width("abc") == 3);
  CHECK(display_width("gr\xc3\xbc\xc3\x9f") == 4);
  CHECK(display_width("日本") == 4);
  CHECK(display_width("✅❌⏳⭐⚡") == 10);
  CHECK(display_width("🟢🫠") == 4);
  CHECK(display_width("✓●╰─…→") == 6);
  CHECK(display_width("e\xcc\x81") == 1);  // e and a combining accent
  CHECK(display_width("\xff\xfe") == 2);   // not UTF-8: a column each
  CHECK(display_width("\xe6\x97") == 2);   // torn
}

TEST_CASE("cutting keeps characters whole") {
  CHECK(cut_to_width("abcdef", 6) == "abcdef");
  CHECK(cut_to_width("abcdef", 5) == "ab...");
  CHECK(cut_to_width("abcdef", 2) == "ab");
  CHECK(cut_to_width("日本日本", 7) == "日本...");
  CHECK(cut_to_width("日本日本", 6) == "日...");
}

TEST_CASE("text is broken at blanks, below where it begins") {
  CHECK(wrapped("one two three", 0, 4) == "one two three");
  CHECK(wrapped("one two three", 11, 4) == "one two\n    three");
  CHECK(wrapped("one two three", 10, 4) == "one\n    two\n    three");
  CHECK(wrapped("one unbreakable", 9, 4) == "one\n    unbreakable");
  CHECK(wrapped("unbreakable one", 9, 4) == "unbreakable\n    one");
  CHECK(wrapped("日本 日本", 10, 2) == "日本\n  日本");
  CHECK(wrapped("日本 日本", 11, 2) == "日本 日本");
  CHECK(wrapped("", 9, 4) == "");
}

TEST_CASE("each line of a text goes on below where it began, and what is there to be typed stays whole") {
  CHECK(folded("one two three", 0) == "one two three");
  CHECK(folded("one two\n  three four", 9) == "one two\n  three\n  four");
  CHECK(folded("one two three\ndtrain kill 4\nten", 8) == "one two\nthree\ndtrain kill 4\nten");
  CHECK(folded("one two\nthree\n", 9, 4) == "one\n    two\n    three\n");
}

TEST_CASE("ink appears only where there are colours") {
  CHECK(paint("x", Ink::Red, false) == "x");
  CHECK(paint("x", Ink::Plain, true) == "x");
  CHECK(paint("x", Ink::Red, true) == "\x1b[31mx\x1b[0m");
}
