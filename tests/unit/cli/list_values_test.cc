#include "cli/list_values.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

namespace dtrain::cli {
namespace {

std::string list_warning(const std::string& value) {
  const auto spec = parse_spec(fmt::format("{{project: p, train: {{parameters: {{rate: {}}}, run: x}}}}", value), {});
  if (!spec.ok()) FAIL(spec.error().message);
  return list_value_warning(*spec);
}

TEST_CASE("numbers in a row without brackets are told to be one value") {
  CHECK(list_warning("'0.1, 0.2'") == "rate is one value, the text '0.1, 0.2'; [0.1, 0.2] is a member for each");
  CHECK(!list_warning("'1, 2, 1e-3'").empty());
  for (const char* value : {"0.1", "'64,64'", "'a, b'", "'1, x'", "'1, '", "[0.1, 0.2]", "'3 4'"}) CHECK_MESSAGE(list_warning(value).empty(), value);
}

}  // namespace
}  // namespace dtrain::cli
