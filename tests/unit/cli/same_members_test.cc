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

}  // namespace
}  // namespace dtrain::cli
