#include "cli/id_ranges.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace dtrain::cli {
namespace {

// 4, 5, 7 and 9 are there; 4 is a set of three.
Result<std::vector<ExperimentId>> known(const IdRange& range) {
  std::vector<ExperimentId> ids;
  for (const ExperimentId& id : {ExperimentId{4, 0}, {4, 1}, {4, 2}, {4, 3}, {5, 0}, {7, 0}, {9, 0}}) {
    const bool is_alike = (id.member == 0) == (range.first.member == 0);
    if (is_alike && id >= range.first && id <= range.last) ids.push_back(id);
  }
  return ids;
}

std::string expanded(const std::vector<std::string>& typed) {
  const auto ids = without_ranges(typed, known);
  return ids.ok() ? fmt::format("{}", fmt::join(*ids, " ")) : ids.error().message;
}

TEST_CASE("a range is what there is of it, in order and once") {
  CHECK(expanded({}).empty());
  CHECK(expanded({"12", "4.worker"}) == "12 4.worker");   // no ranges: whoever reads them judges them
  CHECK(expanded({"4-9"}) == "4 5 7 9");
  CHECK(expanded({"5-6"}) == "5");
  CHECK(expanded({"7-7"}) == "7");
  CHECK(expanded({"4.2-4.9"}) == "4.2 4.3");
  CHECK(expanded({"9", "4-9", "5-7"}) == "9 4 5 7");
}

TEST_CASE("what is no range, or an empty one, is refused") {
  for (const char* text : {"9-4", "4-", "-9", "4-x", "4.1-9", "4-4.2", "4.1-5.2", "4.worker-9", "4-9-10", "0-3", "4.2-4.1"}) {
    CAPTURE(text);
    CHECK(!read_range(text).ok());
    const auto refused = without_ranges({text}, known);
    REQUIRE(!refused.ok());
    CHECK(refused.error().code == Code::InvalidArgument);
    CHECK(refused.error().message == fmt::format("'{}' is no range of IDs", text));
  }
  const auto empty = without_ranges({"10-12"}, known);
  REQUIRE(!empty.ok());
  CHECK(empty.error().code == Code::NotFound);
  CHECK(empty.error().message == "there is nothing from 10 to 12");
  CHECK(without_ranges({"4.4-4.6"}, known).error().hint == "dtrain status 4 shows its members");
}

}  // namespace
}  // namespace dtrain::cli
