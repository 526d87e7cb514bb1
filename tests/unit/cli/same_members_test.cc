#include "cli/same_members.h"

#include <doctest/doctest.h>

namespace dtrain::cli {
namespace {

std::string members_warning(const std::string& inside, const std::string& parameters) {
  const auto spec = parse_spec("project: p\ntrain:\n  framework: engine\n  parameters: " + parameters +
                                   "\n  engine: {model: mlp, data: {train: digits}, " + inside + "}\n",
                               {});
  if (!spec.ok()) FAIL(spec.error().message);
  return same_members_warning(*spec);
}

TEST_CASE("members of the engine that would train the same are told") {
  CHECK(members_warning("batch: [1, 2], seed: '{{ seed }}'", "{seed: [1, 2], note: x}") == "");
  CHECK(members_warning("batch: [1, 2, 1]", "{}") ==
        "'batch' is '1' more than once: these members are the same training");
  CHECK(members_warning("batch: 1", "{unused: [1, 2]}") ==
        "nothing below `engine` holds {{ unused }}: members that differ in it alone are the same training");
}

TEST_CASE("a program of one's own may use what its command does not show") {
  const auto spec = parse_spec("project: p\ntrain: {parameters: {unused: [1, 1]}, run: echo}\n", {});
  REQUIRE(spec.ok());
  CHECK(same_members_warning(*spec) == "");
}

TEST_CASE("only where lists go together, members that are like earlier ones go") {
  const auto left = [](const std::string& train, uint64_t dropped) {
    Spec spec = parse_spec("project: p\ntrain: {run: x, " + train + "}\n", {}).value();
    CHECK(drop_repeated_members(spec) == dropped);
    return spec.member_count();
  };
  CHECK(left("parameters: {a: [1, 1, 2]}", 0) == 3);
  CHECK(left("combine: zip, parameters: {a: [1, 1, 2], b: [3, 4, 4], c: 5}", 0) == 3);
  CHECK(left("combine: zip, parameters: {a: [1, 1, 2, 1], b: [3, 4, 4, 3], c: 5}", 1) == 3);
  CHECK(left("combine: zip, parameters: {a: [1, 1]}", 1) == 1);
  CHECK(left("combine: zip, parameters: {a: [1, 1]}, resources: {cpus: [2, 2]}", 0) == 2);
}

}  // namespace
}  // namespace dtrain::cli
