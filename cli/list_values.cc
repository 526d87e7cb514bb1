#include "cli/list_values.h"

#include <fmt/format.h>

#include <string_view>

#include "schema/decimal.h"
#include "schema/quote.h"

namespace dtrain::cli {
namespace {

// Numbers with blanks between them, which a program would hardly be given as one word.
bool looks_like_list(std::string_view value) {
  constexpr std::string_view kBetween = ", ";
  if (value.find(kBetween) == std::string_view::npos) return false;
  while (true) {
    const size_t end = value.find(kBetween);
    if (!parse_decimal(value.substr(0, end))) return false;
    if (end == std::string_view::npos) return true;
    value.remove_prefix(end + kBetween.size());
  }
}

}  // namespace

std::string list_value_warning(const Spec& spec) {
  for (const Parameter& parameter : spec.parameters) {
    if (parameter.values.size() != 1 || !looks_like_list(parameter.values.front())) continue;
    return fmt::format("{} is one value, the text {}; [{}] is a member for each", parameter.name, in_quotes(parameter.values.front()), parameter.values.front());
  }
  return "";
}

}  // namespace dtrain::cli
