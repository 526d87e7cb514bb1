#include "cli/roles_text.h"

#include <fmt/format.h>

#include "cli/words.h"

namespace dtrain::cli {

std::string roles_text(const Spec& spec) {
  std::string text;
  for (const RoleSpec& role : spec.roles) {
    if (!text.empty()) text += ", ";
    if (spec.elastic && role.role == Role::Worker) text += fmt::format("{} to ", spec.elastic->least_of_role);
    // The plural of ps is ps.
    text += role.role == Role::Ps ? fmt::format("{} ps", role.count)
                                  : human_count(static_cast<uint64_t>(role.count), to_string(role.role));
  }
  return text;
}

}  // namespace dtrain::cli
