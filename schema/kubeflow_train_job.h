// TrainJobs, as Kubeflow's Trainer has them since its version 2, as the jobs of version 1 that mean the same.
#pragma once

#include <string>
#include <vector>

#include "schema/problems.h"
#include "schema/yaml_tree.h"

namespace dtrain {

bool is_train_job(const YamlNode& document);

// Makes it a PyTorchJob, JAXJob or MPIJob, by the name of its runtime, which lies in a cluster and is not read; each part
// has the place of what it comes from. `notes` gets a sentence for people about what that leaves out. With problems it is
// left in no order.
void rewrite_train_job(YamlNode& manifest, Problems& problems, std::vector<std::string>& notes);

}  // namespace dtrain
