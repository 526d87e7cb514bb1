// What a manifest itself answers when its containers ask for fields of their pod or amounts of their resources.
#pragma once

#include "schema/kubeflow_keys.h"
#include "schema/yaml_tree.h"

namespace dtrain {

// Makes values of such a `fieldRef` (labels and annotations of the template, the namespace) and of each `resourceFieldRef` that
// has an answer; the rest stays as it is. Before drop_unused(), which takes out what the answers are in.
void put_fields(YamlNode& manifest, ManifestKind kind);

}  // namespace dtrain
