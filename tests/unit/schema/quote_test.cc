#include "schema/quote.h"

#include <doctest/doctest.h>

using namespace dtrain;

TEST_CASE("what is not printable is shown as bytes") {
  CHECK(in_quotes("plain") == "'plain'");
  CHECK(in_quotes("ü€😀") == "'ü€😀'");
  CHECK(in_quotes("a\nb\x1b[0m") == "'a\\x0ab\\x1b[0m'");
  CHECK(in_quotes("\xff\xc3") == "'\\xff\\xc3'");
  CHECK(in_quotes("\xc2\x85") == "'\\xc2\\x85'");
  CHECK(in_quotes(std::string(500, 'x')).size() < 70);
}

TEST_CASE("bytes that are not UTF-8 are spelled out, and nothing else is touched") {
  CHECK(as_utf8("") == "");
  CHECK(as_utf8("a\nü€😀") == "a\nü€😀");
  CHECK(as_utf8("caf\xe9/ \xc3") == "caf\\xe9/ \\xc3");
  CHECK(as_utf8(std::string(500, 'x')).size() == 500);
}

TEST_CASE("only well-formed UTF-8 counts") {
  CHECK(is_utf8(""));
  CHECK(is_utf8("aé€😀"));
  CHECK_FALSE(is_utf8("\xc0\x80"));          // overlong
  CHECK_FALSE(is_utf8("\xe0\x80\x80"));      // overlong
  CHECK_FALSE(is_utf8("\xed\xa0\x80"));      // surrogate
  CHECK_FALSE(is_utf8("\xf4\x90\x80\x80"));  // past the last code point
  CHECK_FALSE(is_utf8("a\xe2\x82"));         // torn
  CHECK_FALSE(is_utf8("\x80"));
}
