// What the ConfigMaps of a file hold is put into its job, as Kubernetes would: what containers take from them by `envFrom` and
// `configMapKeyRef` becomes values, and the `configMap` of a volume is given its texts: `files: {PATH: TEXT}`, and
// `executable` where they are to be. What is of other maps stays as it is.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "schema/problems.h"
#include "schema/yaml_tree.h"

namespace dtrain {

// The names of those that something was taken from. A key that one of them does not have is a problem.
std::set<std::string> put_config_maps(const std::vector<YamlNode>& config_maps, YamlNode& job, Problems& problems);

}  // namespace dtrain
