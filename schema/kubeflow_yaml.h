// A tree as the text of a manifest, in the form that people know from Kubernetes: blocks, and scripts as they are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schema/yaml_tree.h"

namespace dtrain {

YamlNode yaml_map();
YamlNode yaml_list(const std::vector<std::string>& texts = {});
YamlNode yaml_text(std::string text);    // text whatever it looks like: "1", "yes"
YamlNode yaml_bare(std::string text);    // a number, true or false
YamlNode yaml_bare(int64_t number);
void yaml_put(YamlNode& map, std::string key, YamlNode value);

// The root is a map. YAML of all versions reads a text in it as one: which words are booleans and which letters make a
// number differs between them.
std::string manifest_text(const YamlNode& root);

}  // namespace dtrain
