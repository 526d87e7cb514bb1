#include "schema/exported.h"

#include <cctype>

namespace dtrain {

std::set<std::string> names_in_lines(const Spec& spec, const std::function<bool(std::string_view name)>& is_meant) {
  const auto is_of_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  std::set<std::string> names;
  for (const RoleSpec& role : spec.roles) {
    if (role.role == Role::Tensorboard) continue;
    for (const std::string& line : role.run) {
      for (size_t at = 0; at < line.size(); ++at) {
        size_t end = at;
        while (end < line.size() && is_of_name(line[end])) ++end;
        const std::string_view name = std::string_view(line).substr(at, end - at);
        if (!name.empty() && is_meant(name)) names.emplace(name);
        at = end;
      }
    }
  }
  return names;
}

}  // namespace dtrain
