// Manifests of Kubeflow, TFJob, PyTorchJob, JAXJob and MPIJob, as the dtrain.yml that means the same.
//
// kubeflow_keys.* say what may stand in one, kubeflow_roles.* and kubeflow_container.* what its pods come to, and this
// what a job does. Everything else reads a dtrain.yml and knows nothing of Kubernetes.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schema/problems.h"
#include "schema/yaml_tree.h"

namespace dtrain {

// What the command line says of a manifest's commands and images.
struct GivenBeside {
  std::string run;                      // --set train.run: what the containers run; empty: what they say
  std::optional<std::string> image;     // --set train.image: instead of what they say; empty: none, it runs on the host
  std::vector<std::string> parameters;  // whose {{ name }} has a value
  std::function<bool(const std::string& name)> is_in_shell = {};   // as ParseOptions has it
  std::map<std::string, std::string> secrets = {};   // variables whose values are those of Secrets in its file
};

// Whether a tree is for Kubernetes: it has `apiVersion`.
bool is_manifest(const YamlNode& root);

// Makes a manifest the tree of a dtrain.yml, of which each part has the place of what it comes from; with problems it
// is left in no order. What has no meaning without Kubernetes is left out: `notes` gets a sentence for people.
void read_manifest(YamlNode& manifest, const GivenBeside& given, Problems& problems, std::vector<std::string>& notes);

// Whether a text holds one, as far as it can be read.
bool is_manifest_text(std::string_view yaml);

}  // namespace dtrain
