// What the ConfigMaps of a file hold is put into its job, as Kubernetes would: what containers take from them by `envFrom` and
// `configMapKeyRef` becomes values, and the `configMap` of a volume is given its texts: `files: {PATH: TEXT}`, and
// `executable` where they are to be. What is of other maps stays as it is.
//
// What containers take from its Secrets stays out of the tree: a `secretKeyRef` is there for each variable, and its value beside it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "schema/problems.h"
#include "schema/yaml_tree.h"

namespace dtrain {

struct TakenOfFile {
  std::set<std::string> config_maps, secrets;   // the names of those that something was taken from
  std::map<std::string, std::string> values;    // of Secrets, by the variable's name
};

// A key that one of them does not have is a problem.
TakenOfFile put_config_maps(const std::vector<YamlNode>& config_maps, const std::vector<YamlNode>& secrets, YamlNode& job, Problems& problems);

}  // namespace dtrain
