#include "cli/same_members.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "schema/expand.h"
#include "schema/quote.h"

namespace dtrain::cli {

std::string same_members_warning(const Spec& spec) {
  if (spec.framework != Framework::Engine) return "";
  const std::vector<std::string> used = placeholders(spec.engine.section);
  for (const Parameter& parameter : spec.parameters) {
    const bool is_used = !parameter.path.empty() || std::ranges::find(used, parameter.name) != used.end();
    if (!is_used && parameter.values.size() > 1) {
      return fmt::format("nothing below `engine` holds {{{{ {} }}}}: members that differ in it alone "
                         "are the same training",
                         parameter.name);
    }
    std::set<std::string> known;
    // Lists that go together may say a value again beside another one of the others'.
    const bool alone = spec.search.combine == Combine::Product;
    for (const std::string& value : parameter.values) {
      if (!alone || known.insert(value).second) continue;
      return fmt::format("'{}' is {} more than once: these members are the same training",
                         parameter.name, in_quotes(value));
    }
  }
  return "";
}

}  // namespace dtrain::cli
