// `--set KEY=VALUE` and `-p NAME=VALUE`: what the command line changes in the tree of a file.
#pragma once

#include <string>
#include <vector>

#include "schema/problems.h"
#include "schema/spec.h"
#include "schema/yaml_tree.h"

namespace dtrain {

// A parameter that only the command line declares: legal when the command has a place for it.
struct AddedParameter {
  std::string name;
  Place place;
};

// Whether the value of `-p`, or of a list that `-p` is for, is YAML: "[1, 2]". All others are texts: "[A] b".
bool is_list_or_map(const std::string& text);

// In the order given, `set` first. Problems name the argument as their place.
std::vector<AddedParameter> apply_overrides(YamlNode& root, const ParseOptions& options,
                                            Problems& problems);

}  // namespace dtrain
