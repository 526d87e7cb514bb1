// A Spec as a manifest of Kubeflow that means the same: the inverse of kubeflow.h.
#pragma once

#include <string>
#include <vector>

#include "schema/result.h"
#include "schema/spec.h"

namespace dtrain {

// A key of the dtrain.yml that a manifest has no place for, and what to do about it.
struct LeftOut {
  std::string key;
  std::string why;
};

struct KubeflowManifest {
  std::string text;
  std::vector<LeftOut> left_out;
  std::vector<std::string> notes;  // what the cluster has to have
};

// A TFJob, PyTorchJob or MPIJob of kubeflow.org/v1. The Spec is what member_spec() gives. InvalidArgument says what to
// type where there can be none: it takes a framework that Kubeflow knows, and an image of a registry.
Result<KubeflowManifest> kubeflow_manifest(const Spec& spec);

}  // namespace dtrain
