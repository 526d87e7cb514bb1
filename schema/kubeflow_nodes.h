// Nodes of a tree that is made of a manifest's: each has the place of what it comes from.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "schema/yaml_tree.h"

namespace dtrain {

inline YamlNode scalar_at(Place place, std::string text, bool plain = true) {
  YamlNode node;
  node.kind = YamlNode::Kind::Scalar;
  node.place = place;
  node.plain = plain;
  node.text = std::move(text);
  return node;
}
inline YamlNode map_at(Place place) {
  YamlNode node;
  node.kind = YamlNode::Kind::Map;
  node.place = place;
  return node;
}
inline YamlNode list_of(Place place, const std::vector<std::string>& texts) {
  YamlNode node;
  node.kind = YamlNode::Kind::List;
  node.place = place;
  for (const std::string& text : texts) node.items.push_back(scalar_at(place, text, false));
  return node;
}
inline void put_at(YamlNode& map, std::string key, YamlNode value) {
  const Place place = value.place;
  map.entries.push_back({std::move(key), place, std::move(value)});
}

}  // namespace dtrain
