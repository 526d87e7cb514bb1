// What a text that is no valid YAML is told: the rule that yaml-cpp says was broken, and what the
// person probably did.
#pragma once

#include <string>
#include <string_view>

namespace dtrain {

struct YamlSpot {
  int line = 0;  // both from 0 on
  int column = 0;
};

std::string explain_yaml_mistake(std::string_view text, const YamlSpot& spot, std::string_view rule);

}  // namespace dtrain
