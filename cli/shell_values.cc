#include "cli/shell_values.h"

#include <fmt/format.h>

#include "schema/expand.h"
#include "schema/quote.h"

namespace dtrain::cli {

namespace {

// Blanks are left out: a value may well be meant as several words.
constexpr std::string_view kSpecial = ";&|<>$`()\\\"'*?#";

// Whether `{{ name }}` stands somewhere in the line outside of quotes.
bool stands_bare(std::string_view line, std::string_view name) {
  char quote = 0;
  for (size_t at = 0; at < line.size(); ++at) {
    const char c = line[at];
    if ((c == '\'' || c == '"') && (quote == 0 || quote == c)) quote = quote == 0 ? c : '\0';
    if (quote != 0 || !line.substr(at).starts_with("{{")) continue;
    const std::string_view placeholder = line.substr(at, line.find("}}", at) - at);
    const auto names = placeholders(std::string(placeholder) + "}}");
    if (!names.empty() && names.front() == name) return true;
  }
  return false;
}

bool is_pasted_bare(const Spec& spec, std::string_view name) {
  for (const RoleSpec& role : spec.roles) {
    for (const std::string& line : role.run) {
      if (stands_bare(line, name)) return true;
    }
  }
  return false;
}

}  // namespace

std::string shell_value_warning(const Spec& spec) {
  for (const Parameter& parameter : spec.parameters) {
    for (const std::string& value : parameter.values) {
      if (value.find_first_of(kSpecial) == std::string::npos) continue;
      if (!is_pasted_bare(spec, parameter.name)) break;
      return fmt::format(
          "the shell will read {} in {{{{ {} }}}} as a part of the command; \"${}\" is the value "
          "as it is",
          in_quotes(value), parameter.name, parameter_env_name(parameter.name));
    }
  }
  return "";
}

}  // namespace dtrain::cli
