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

// In the order given, `set` first. Problems name the argument as their place.
std::vector<AddedParameter> apply_overrides(YamlNode& root, const ParseOptions& options,
                                            Problems& problems);

}  // namespace dtrain
