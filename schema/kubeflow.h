// Manifests of Kubeflow, TFJob, PyTorchJob and MPIJob, as the dtrain.yml that means the same.
//
// kubeflow_keys.* say what may stand in one, kubeflow_roles.* and kubeflow_container.* what its pods come to, and this
// what a job does. Everything else reads a dtrain.yml and knows nothing of Kubernetes.
#pragma once

#include <string>
#include <vector>

#include "schema/problems.h"
#include "schema/yaml_tree.h"

namespace dtrain {

// Whether a tree is for Kubernetes: it has `apiVersion`.
bool is_manifest(const YamlNode& root);

// Makes a manifest the tree of a dtrain.yml, of which each part has the place of what it comes from; with problems it
// is left in no order. What has no meaning without Kubernetes is left out: `notes` gets a sentence for people.
// `has_run`: a command is given elsewhere, and need not be here.
void read_manifest(YamlNode& manifest, bool has_run, Problems& problems, std::vector<std::string>& notes);

}  // namespace dtrain
