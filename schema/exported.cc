#include "schema/exported.h"

#include <cctype>

namespace dtrain {

std::set<std::string> names_in_lines(const std::vector<std::string>& lines, const std::function<bool(std::string_view name)>& is_meant) {
  constexpr std::string_view kBeforeAssignment = " \t\n;&|('\"";
  const auto is_of_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  std::set<std::string> names, assigned;
  for (const std::string& line : lines) {
    for (size_t at = 0; at < line.size(); ++at) {
      size_t end = at;
      while (end < line.size() && is_of_name(line[end])) ++end;
      const std::string_view name = std::string_view(line).substr(at, end - at);
      const bool is_begin = at == 0 || kBeforeAssignment.find(line[at - 1]) != std::string_view::npos;
      if (!name.empty() && is_meant(name)) (is_begin && end < line.size() && line[end] == '=' ? assigned : names).emplace(name);
      at = end;
    }
  }
  for (const std::string& name : assigned) names.erase(name);
  return names;
}

}  // namespace dtrain
