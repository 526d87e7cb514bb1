// A Spec as a manifest of Kubeflow that means the same: the inverse of kubeflow.h.
#pragma once

#include "schema/exported.h"
#include "schema/result.h"
#include "schema/spec.h"

namespace dtrain {

// A TFJob, PyTorchJob, JAXJob or MPIJob of kubeflow.org/v1. The Spec is what member_spec() gives. InvalidArgument says what to
// type where there can be none: it takes a framework that Kubeflow knows, and an image of a registry.
Result<Exported> kubeflow_manifest(const Spec& spec);

}  // namespace dtrain
