// Volumes of a manifest's pods. What lies on nodes by a path lies so on hosts, an empty directory is one, and all others
// are the cluster's.
#pragma once

#include <string>
#include <vector>

#include "schema/yaml_tree.h"

namespace dtrain {

// Whether a volume's, or a variables', source may be missing: `secret: {secretName: x, optional: true}`.
bool is_optional_source(const YamlNode& source);

// Makes of volumeMounts of the pod's containers a list of what they are, and takes `volumes` out: texts SOURCE:PATH[:ro] as
// mounts.h has them, PATH alone of an empty directory, and of files of a ConfigMap (kubeflow_config_maps.h) a map of `path`
// and of `run`, a line that writes them there. Volumes that are not to be had here are added to `missed`, but for optional
// ones: "the volume data (line 12), of /data".
void simplify_volumes(YamlNode& pod, std::vector<std::string>& missed);

}  // namespace dtrain
