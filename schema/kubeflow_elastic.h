// What a PyTorchJob says of processes and of a rendezvous, in keys of its own, and a replica in lines before its command.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "schema/spec.h"
#include "schema/yaml_tree.h"

namespace dtrain {

struct ElasticPolicy {
  bool is_given = false;         // also of a gang that is as large as it ever is
  bool is_rank_of_node = false;  // lines make RANK what it is there anyway
  std::string processes;         // of torchrun, as a word; empty: as the Spec says
  std::string backend, host, port, id, restarts;  // of the rendezvous; empty: as Kubeflow has it
  std::string conf;                               // "timeout=600,read_timeout=60"
  bool is_standalone = false;

  bool operator==(const ElasticPolicy&) const = default;

  // nprocPerNode and elasticPolicy of the job.
  void put(const Spec& spec, bool has_master, YamlNode& job) const;
  static int least_replicas(const Spec& spec, bool has_master);
  // What Kubeflow tells each process.
  void add_variables(bool has_master, std::set<std::string, std::less<>>& names) const;
};

// Takes the lines out of what the roles run, where they are what such keys are read as (kubeflow.h).
ElasticPolicy take_elastic_lines(Spec& spec);

}  // namespace dtrain
