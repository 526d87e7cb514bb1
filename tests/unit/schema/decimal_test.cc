#include "schema/decimal.h"

#include <doctest/doctest.h>

#include <vector>

using namespace dtrain;

namespace {

std::vector<std::string> range(const char* min, const char* max, const char* step) {
  const auto made =
      DecimalRange::make(*parse_decimal(min), *parse_decimal(max), *parse_decimal(step));
  std::vector<std::string> values;
  for (uint64_t i = 0; made && i < made->count(); ++i) values.push_back(made->at(i));
  return values;
}

}  // namespace

TEST_CASE("decimals are exact and written without exponent") {
  const std::pair<const char*, const char*> cases[] = {
      {"3", "3"},
      {"-0.50", "-0.5"},
      {".25", "0.25"},
      {"1e-6", "0.000001"},
      {"1.5e3", "1500"},
      {"0", "0"},
      {"-0", "0"},
      {"1.", "1"},
      {"007", "7"},
      {"+2", "2"},
      {"0.000000000000000001", "0.000000000000000001"},
      {"1e18", "1000000000000000000"},
      {"9223372036854775807", "9223372036854775807"}};
  for (const auto& [text, expected] : cases) {
    CAPTURE(text);
    const auto value = parse_decimal(text);
    REQUIRE(value);
    CHECK(to_string(*value) == expected);
  }
  for (const char* text : {"", "-", ".", "e5", "1e", "1e+", "1x", "1e99", "1e19", "0x10", "inf",
                           "nan", "9223372036854775808", "1e-19", "1 2", "1e5000000000000000000"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_decimal(text));
  }
}

TEST_CASE("a range has both its ends and no rounding") {
  CHECK(range("0.1", "0.5", "0.1") == std::vector<std::string>{"0.1", "0.2", "0.3", "0.4", "0.5"});
  CHECK(range("3", "5", "1") == std::vector<std::string>{"3", "4", "5"});
  CHECK(range("2", "8", "2.5") == std::vector<std::string>{"2", "4.5", "7"});
  CHECK(range("-1", "1", "1") == std::vector<std::string>{"-1", "0", "1"});
  CHECK(range("1e-7", "3e-7", "1e-7") ==
        std::vector<std::string>{"0.0000001", "0.0000002", "0.0000003"});
  CHECK(range("1", "1", "5") == std::vector<std::string>{"1"});
  CHECK(range("2", "1", "1").empty());
  CHECK(range("1", "2", "0").empty());
}

TEST_CASE("a huge range is counted without overflow") {
  const auto huge = DecimalRange::make(*parse_decimal("0"), *parse_decimal("9e18"), {1, 0});
  REQUIRE(huge);
  CHECK(huge->count() == 9'000'000'000'000'000'001u);
  CHECK_FALSE(DecimalRange::make(*parse_decimal("-9e18"), *parse_decimal("9e18"), {1, 0}));
  CHECK_FALSE(
      DecimalRange::make(*parse_decimal("1e18"), *parse_decimal("2e18"), *parse_decimal("0.001")));
}

TEST_CASE("multiplying rounds towards zero and notices overflow") {
  CHECK(multiply(*parse_decimal("1.5"), 1000) == 1500);
  CHECK(multiply(*parse_decimal("0.0001"), 1000) == 0);
  CHECK(multiply(*parse_decimal("1.5"), int64_t{1} << 30) == 1610612736);
  CHECK_FALSE(multiply(*parse_decimal("1e18"), 1000));
  CHECK_FALSE(multiply(*parse_decimal("-1e18"), 1000));
  // As a script writes 0.1 * 3 * 1024: the product is more than 64 bits hold, the result not.
  CHECK(multiply(*parse_decimal("307.20000000000005"), int64_t{1} << 20) == 322122547);
  CHECK(multiply(*parse_decimal("-1638.3999999999999"), int64_t{1} << 20) == -1717986918);
}
