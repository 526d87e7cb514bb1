// What tells each process of a gang who the others are: TF_CONFIG, or PyTorch's or JAX's variables. Pure functions of a placement.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "schema/ids.h"
#include "schema/spec.h"

namespace dtrain {

// One replica's place, fixed together with the whole gang's before anything starts.
struct Seat {
  ReplicaId replica;
  HostId host;
  std::string host_name;   // as it was when it was placed, for people
  std::string address;  // how the others reach it: an IP address or a name
  int port = 0;
  int rank = 0;        // over the whole gang, in Spec order
  int local_rank = 0;  // among the gang's replicas on this host
  double cpus = 1;
  uint64_t memory_bytes = 0;
  std::vector<int> gpus;  // device indices of the host, in PCI bus order
  bool operator==(const Seat&) const = default;
};

// The zero-based index of a replica in TensorFlow's cluster, and its type: master is worker 0; with a
// chief worker.k is index k-1, without one it is index k; ps.k and evaluator.k are k-1.
struct TensorflowTask {
  std::string type;
  int index = 0;
};
TensorflowTask tensorflow_task(const Spec& spec, const ReplicaId& replica);

// The variables that describe the cluster to `replica`. For tensorflow and engine TF_CONFIG, and nothing for a gang of
// one; the evaluator is in its own cluster and out of the others'. For pytorch, whatever the number: MASTER_ADDR,
// MASTER_PORT, WORLD_SIZE, RANK, LOCAL_RANK, LOCAL_WORLD_SIZE, NODE_RANK and GROUP_RANK, which
// init_process_group() and Lightning read, and PET_*, which torchrun does. A node is a replica: it sees its own GPUs
// alone, counted from 0, whoever else is on its host. Where torchrun starts several processes in each, RANK is of
// the first of them. For jax, whatever the number, what jax.distributed.initialize() is to be given, by the names of
// Kubeflow's TrainJob (JAX_COORDINATOR_ADDRESS, HOST:PORT, which it reads by itself; JAX_COORDINATOR_PORT, JAX_NUM_PROCESSES, JAX_PROCESS_ID)
// and of its JAXJob (COORDINATOR_ADDRESS, the host alone; COORDINATOR_PORT, NUM_PROCESSES, PROCESS_ID).
std::map<std::string, std::string> cluster_env(const Spec& spec, const std::vector<Seat>& gang,
                                               const ReplicaId& replica);

bool is_pytorch_variable(std::string_view name);
bool is_jax_variable(std::string_view name);

// That a replica's program consists of, as far as the framework's section says: 1, or as many as torchrun or mpirun
// starts.
int processes_in(const Spec& spec, const Seat& seat);

// About how much the TF_CONFIGs of all replicas of a gang take together: each names every one.
uint64_t cluster_env_bytes(const Spec& spec);

}  // namespace dtrain
