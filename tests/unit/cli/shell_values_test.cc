#include "cli/shell_values.h"

#include <doctest/doctest.h>

namespace dtrain::cli {
namespace {

std::string shell_warning(const std::string& run, const std::string& value) {
  auto spec = parse_spec(
      "project: p\ntrain:\n  parameters: {lr: 0.1, my-note: '" + value + "'}\n  run: |\n    " + run +
          "\n",
      {});
  if (!spec.ok()) FAIL(spec.error().message);
  return shell_value_warning(spec.value());
}

TEST_CASE("a value that the shell would read as more than words is told") {
  CHECK(shell_warning("train {{ lr }} {{ my-note }}", "a;b") ==
        "the shell will read 'a;b' in {{ my-note }} as a part of the command; \"$MY_NOTE\" is the "
        "value as it is");
  CHECK(!shell_warning("train {{my-note}}", "cost $5").empty());
  for (const char* run : {"train '{{ my-note }}'", "train \"x {{ my-note }}\"", "train $MY_NOTE"}) {
    CHECK_MESSAGE(shell_warning(run, "a;b").empty(), run);
  }
  CHECK(shell_warning("train {{ my-note }}", "--fast --lr 0.1e-3,b_c/d").empty());
}

}  // namespace
}  // namespace dtrain::cli
