// What a Spec is to another system.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

// A key of the dtrain.yml that has no place there, and what to do about it.
struct LeftOut {
  std::string key;
  std::string why;
};

struct Exported {
  std::string text;
  std::vector<LeftOut> left_out;
  std::vector<std::string> notes;  // what the system has to have, and what is otherwise there
};

// Which names stand in lines of a shell, of those that are meant; but not what the lines set themselves.
std::set<std::string> names_in_lines(const std::vector<std::string>& lines, const std::function<bool(std::string_view name)>& is_meant);

}  // namespace dtrain
