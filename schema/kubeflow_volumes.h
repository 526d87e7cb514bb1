// Volumes of a manifest's pods. What lies on nodes by a path lies so on hosts, an empty directory is one, and all others
// are the cluster's.
#pragma once

#include <string>
#include <vector>

#include "schema/yaml_tree.h"

namespace dtrain {

// Makes of volumeMounts of the pod's containers a list of texts, and takes `volumes` out: SOURCE:PATH[:ro] as mounts.h has
// it, or PATH alone of an empty directory. Volumes that are not to be had here are added to `missed`: "the volume data
// (line 12)".
void simplify_volumes(YamlNode& pod, std::vector<std::string>& missed);

}  // namespace dtrain
