#include "cli/same_members.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "schema/expand.h"
#include "schema/quote.h"

namespace dtrain::cli {

namespace {

// Members whose lists go together: the first two that are alike in all that is used.
std::string same_rows_warning(const Spec& spec, const std::set<std::string>& used) {
  std::map<std::string, uint32_t> known;
  for (uint32_t member = 1; member <= spec.member_count(); ++member) {
    std::string row;
    for (const auto& [name, value] : member_parameters(spec, member)) {
      if (used.contains(name)) row += fmt::format("{}={}\n", name, value);
    }
    const auto [earlier, fresh] = known.emplace(row, member);
    if (!fresh) return fmt::format("members {} and {} have the same values: they are the same training", earlier->second, member);
  }
  return "";
}

}  // namespace

std::string same_members_warning(const Spec& spec) {
  if (spec.framework != Framework::Engine) return "";
  std::set<std::string> used;
  for (const std::string& name : placeholders(spec.engine.section)) used.insert(name);
  for (const Parameter& parameter : spec.parameters) {
    if (!parameter.path.empty()) used.insert(parameter.name);
  }
  for (const Parameter& parameter : spec.parameters) {
    if (!used.contains(parameter.name) && parameter.values.size() > 1) {
      return fmt::format("nothing below `engine` holds {{{{ {} }}}}: members that differ in it alone "
                         "are the same training",
                         parameter.name);
    }
    if (spec.combine == Combine::Zip) continue;   // a value may come again beside others
    std::set<std::string> known;
    for (const std::string& value : parameter.values) {
      if (known.insert(value).second) continue;
      return fmt::format("'{}' is {} more than once: these members are the same training",
                         parameter.name, in_quotes(value));
    }
  }
  return spec.combine == Combine::Zip && spec.is_set() ? same_rows_warning(spec, used) : "";
}

uint64_t drop_repeated_members(Spec& spec) {
  const bool has_paths = std::ranges::any_of(spec.parameters, [](const Parameter& parameter) { return !parameter.path.empty(); });
  if (spec.combine != Combine::Zip || has_paths) return 0;
  const auto members = static_cast<uint32_t>(spec.member_count());
  std::set<std::map<std::string, std::string>> rows;
  std::vector<size_t> kept;
  for (uint32_t member = 1; member <= members; ++member) {
    if (rows.insert(member_parameters(spec, member)).second) kept.push_back(member - 1);
  }
  for (Parameter& parameter : spec.parameters) {
    if (parameter.values.size() == 1) continue;
    std::vector<std::string> values;
    for (const size_t each : kept) values.push_back(parameter.values[each]);
    parameter.values = std::move(values);
  }
  return members - kept.size();
}

}  // namespace dtrain::cli
