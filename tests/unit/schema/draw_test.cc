#include "schema/draw.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace dtrain {
namespace {

Drawable from(double min, double max, bool logarithmic) {
  return {logarithmic ? "log" : "linear", {}, Distribution{min, max, logarithmic}};
}

std::vector<double> numbers(const std::vector<std::string>& texts) {
  std::vector<double> values;
  for (const std::string& text : texts) values.push_back(std::stod(text));
  std::sort(values.begin(), values.end());
  return values;
}

TEST_CASE("each of as many equal parts of a range has one member") {
  const auto drawn = draw({from(-2, 6, false), from(1e-5, 1e-1, true)}, 40, 3);
  REQUIRE(drawn.size() == 2);
  const auto uniform = numbers(drawn[0]), logarithmic = numbers(drawn[1]);
  REQUIRE(uniform.size() == 40);
  REQUIRE(logarithmic.size() == 40);
  for (size_t i = 0; i < 40; ++i) {
    const double part = static_cast<double>(i);
    CAPTURE(i);
    CHECK(uniform[i] >= doctest::Approx(-2 + part / 5));
    CHECK(uniform[i] <= doctest::Approx(-2 + (part + 1) / 5));
    CHECK(std::log10(logarithmic[i]) >= doctest::Approx(-5 + part / 10));
    CHECK(std::log10(logarithmic[i]) <= doctest::Approx(-5 + (part + 1) / 10));
  }
}

TEST_CASE("the same seed draws the same, another one others, and parameters don't go in step") {
  std::vector<Drawable> two = {from(0, 1, false), from(0, 1, false)};
  two[1].name = "other";
  CHECK(draw(two, 30, 1) == draw(two, 30, 1));
  CHECK(draw(two, 30, 1) != draw(two, 30, 2));
  const auto drawn = draw(two, 1000, 1);
  double sum = 0;
  for (size_t i = 0; i < 1000; ++i) sum += (std::stod(drawn[0][i]) - 0.5) * (std::stod(drawn[1][i]) - 0.5);
  CHECK(std::abs(sum / 1000 * 12) < 0.1);   // their correlation
}

TEST_CASE("values are short, inside, and fine enough for their range") {
  const auto wide = draw({from(1e-5, 1e-1, true)}, 200, 1)[0];
  for (const std::string& text : wide) {
    CHECK(text.size() <= 10);
    CHECK(std::stod(text) >= 1e-5);
    CHECK(std::stod(text) <= 1e-1);
  }
  const auto narrow = draw({from(100, 100.01, false)}, 1000, 1)[0];
  CHECK(std::set<std::string>(narrow.begin(), narrow.end()).size() == 1000);
  for (const std::string& text : narrow) CHECK((std::stod(text) >= 100 && std::stod(text) <= 100.01));
  // A third has no end, so that what is rounded would lie outside.
  const double third = 1.0 / 3;
  const auto thirds = draw({from(third, third + 1e-9, false)}, 50, 1)[0];
  for (const std::string& text : thirds) CHECK(std::stod(text) >= third);
  CHECK(draw({from(2, 2, false)}, 3, 1)[0] == std::vector<std::string>{"2", "2", "2"});
}

TEST_CASE("with steps only these, as often as each other, or by their logarithms") {
  Drawable eighths = from(0, 1, false), powers = from(1, 1000, true);
  eighths.distribution->steps = DecimalRange::make({0, 0}, {1, 0}, {125, 3});
  eighths.distribution->step = 0.125;
  powers.distribution->steps = DecimalRange::make({1, 0}, {1000, 0}, {1, 0});
  powers.distribution->step = 1;
  const auto drawn = draw({eighths, powers}, 90, 5);
  std::map<std::string, int> uses;
  for (const std::string& text : drawn[0]) ++uses[text];
  CHECK(uses.size() == 9);
  for (const auto& [text, count] : uses) CHECK(count == 10);
  CHECK(uses.contains("0.125"));
  int below_thirty = 0;
  for (const std::string& text : drawn[1]) {
    CHECK(text.find('.') == std::string::npos);
    CHECK((std::stoi(text) >= 1 && std::stoi(text) <= 1000));
    below_thirty += std::stoi(text) <= 31;
  }
  CHECK(below_thirty >= 42);
  CHECK(below_thirty <= 48);
}

TEST_CASE("of lists alone no combination comes twice, and all where there are no more") {
  const std::vector<Drawable> lists = {{"x", {"a", "b", "c"}}, {"y", {"1", "2", "3", "4"}}};
  const auto pairs = [&](size_t members, uint64_t seed) {
    const auto drawn = draw(lists, members, seed);
    std::vector<std::string> all;
    for (size_t i = 0; i < drawn[0].size(); ++i) all.push_back(drawn[0][i] + drawn[1][i]);
    return all;
  };
  std::map<std::string, int> uses;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const auto some = pairs(5, seed);
    REQUIRE(some.size() == 5);
    CHECK(std::set<std::string>(some.begin(), some.end()).size() == 5);
    for (const std::string& pair : some) ++uses[pair];
  }
  CHECK(uses.size() == 12);
  for (const auto& [pair, count] : uses) CHECK(std::abs(count - 2000 * 5 / 12) < 120);   // none is preferred
  CHECK(pairs(50, 1).size() == 12);
  // In no order of the lists.
  const auto all = pairs(12, 1);
  CHECK_FALSE(std::is_sorted(all.begin(), all.end()));
}

TEST_CASE("of more combinations than can be gone through none comes twice, either") {
  std::vector<Drawable> lists;
  for (int i = 0; i < 40; ++i) lists.push_back({std::to_string(i), {"0", "1"}});
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const auto drawn = draw(lists, 1000, seed);
    std::set<std::string> rows;
    for (size_t member = 0; member < 1000; ++member) {
      std::string row;
      for (const auto& values : drawn) row += values[member];
      rows.insert(row);
    }
    CHECK(rows.size() == 1000);
  }
}

TEST_CASE("what a range gives is the same whatever others there are") {
  const Drawable one = from(0, 1, false), other = from(1, 2, true);
  CHECK(draw({one, other}, 20, 4)[0] == draw({one}, 20, 4)[0]);
}

TEST_CASE("the widest ranges have values all over, and numbers look as people write them") {
  for (const auto& [low, high, logarithmic] : {std::tuple{1e-300, 1e300, true}, {5e-324, 1.0, true}, {-1e308, 1e308, false}}) {
    const auto drawn = draw({from(low, high, logarithmic)}, 50, 1)[0];
    CHECK(std::set<std::string>(drawn.begin(), drawn.end()).size() == 50);
  }
  const auto large = draw({from(100, 1e6, false)}, 50, 1)[0];
  for (const std::string& text : large) CHECK_MESSAGE(text.find('e') == std::string::npos, text);
}

TEST_CASE("beside a range a list has each value as often") {
  const auto drawn = draw({{"act", {"relu", "gelu", "tanh"}}, from(0, 1, false)}, 31, 9);
  std::map<std::string, int> uses;
  for (const std::string& text : drawn[0]) ++uses[text];
  CHECK(uses.size() == 3);
  for (const auto& [text, count] : uses) CHECK((count == 10 || count == 11));
}

}  // namespace
}  // namespace dtrain
