#include "schema/line_pattern.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace dtrain;

namespace {

std::vector<std::string> found(std::string_view pattern, std::string_view line) {
  const auto compiled = LinePattern::compile(pattern);
  REQUIRE(compiled.ok());
  std::vector<std::string> values;
  size_t at = 0;
  while (const auto value = compiled->find(line, at)) values.emplace_back(*value);
  return values;
}

}  // namespace

TEST_CASE("the first group is the value, or the whole match where there is none") {
  using List = std::vector<std::string>;
  CHECK(found("loss: ([0-9.]+)", "a loss: 0.5, loss: 0.25") == List{"0.5", "0.25"});
  CHECK(found("[0-9]+", "1 22 x") == List{"1", "22"});
  CHECK(found("(?:val|test): ([0-9]+)", "test: 3") == List{"3"});
  CHECK(found("loss|(acc)", "loss acc") == List{"", "acc"});
  CHECK(found("loss", "nothing") == List{});
  CHECK(found("^x", "xx") == List{"x"});
}

TEST_CASE("a match of nothing is not found for ever") {
  CHECK(found("x*", "axb").size() <= 4);
  CHECK(found("", "ab").size() == 3);
}

TEST_CASE("time is linear in the line, whatever the pattern") {
  const std::string line(4000, 'a');
  CHECK(found("(?:a*)*(?:a*)*b", line).empty());
}

TEST_CASE("what can't be used is refused with the reason") {
  const auto reason = [](std::string_view text) {
    const auto compiled = LinePattern::compile(text);
    return compiled.ok() ? "accepted" : compiled.error().message;
  };
  CHECK(reason("a(b") == "'a(b' is no regular expression: missing ): a(b");
  CHECK(reason(std::string(1001, 'a')) == "a regular expression has at most 1000 characters");
  CHECK(reason("(x{1000}){1000}") != "accepted");
}
