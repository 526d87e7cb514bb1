#include "schema/cluster_env.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace dtrain {

namespace {

bool speaks_tf_config(Framework framework) {
  switch (framework) {
    case Framework::Tensorflow:
    case Framework::Engine:
      return true;
    case Framework::Command:
    case Framework::Pytorch:
    case Framework::Jax:
    case Framework::Mpi:
      return false;
  }
  return false;
}

// "255.255.255.255:65535", with its quotes and comma.
constexpr uint64_t kEndpointBytes = 24;

// An IPv6 address needs brackets before a port.
std::string endpoint(const Seat& seat) {
  const bool ipv6 = seat.address.find(':') != std::string::npos && seat.address[0] != '[';
  return ipv6 ? fmt::format("[{}]:{}", seat.address, seat.port)
              : fmt::format("{}:{}", seat.address, seat.port);
}

}  // namespace

uint64_t cluster_env_bytes(const Spec& spec) {
  if (!speaks_tf_config(spec.framework)) return 0;
  const auto replicas = static_cast<uint64_t>(spec.replica_count());
  return replicas * replicas * kEndpointBytes;
}

TensorflowTask tensorflow_task(const Spec& spec, const ReplicaId& replica) {
  const bool has_chief = spec.role(Role::Chief) != nullptr;
  const int index = static_cast<int>(replica.index);
  switch (replica.role) {
    case Role::Master:
      return {"worker", 0};
    case Role::Chief:
      return {spec.tensorflow.chief_task, 0};
    case Role::Worker:
      return {"worker", has_chief ? index - 1 : index};
    case Role::Ps:
      return {"ps", index - 1};
    case Role::Evaluator:
      return {"evaluator", index - 1};
    case Role::Train:
    case Role::Launcher:
    case Role::Build:
    case Role::Tensorboard:
      break;
  }
  INVARIANT(false, "the role has a place in TensorFlow's cluster");
  return {};
}

int processes_in(const Spec& spec, const Seat& seat) {
  const bool is_mpi = spec.framework == Framework::Mpi && seat.replica.role == Role::Worker;
  const int said = is_mpi ? spec.mpi.slots : spec.pytorch.nproc_per_node;
  static_assert(MpiOptions::kOnePerGpu == PytorchOptions::kOnePerGpu);
  return said != PytorchOptions::kOnePerGpu ? said : std::max(1, static_cast<int>(seat.gpus.size()));
}

namespace {

std::map<std::string, std::string> pytorch_env(const Spec& spec, const std::vector<Seat>& gang, const ReplicaId& replica) {
  int nodes = 0, world = 0, node_rank = 0, rank = 0, local_world = 1;
  const Seat* master = nullptr;
  for (const Seat& seat : gang) {
    if (seat.replica.role == Role::Tensorboard) continue;
    if (master == nullptr) master = &seat;  // the decider comes first
    if (seat.replica == replica) {
      node_rank = nodes;
      rank = world;
      local_world = processes_in(spec, seat);
    }
    ++nodes;
    world += processes_in(spec, seat);
  }
  INVARIANT(master != nullptr, "a gang has who decides");
  const std::string port = std::to_string(master->port), node = std::to_string(node_rank);
  return {{"MASTER_ADDR", master->address},
          {"MASTER_PORT", port},
          {"WORLD_SIZE", std::to_string(world)},
          {"RANK", std::to_string(rank)},
          {"LOCAL_RANK", "0"},
          {"LOCAL_WORLD_SIZE", std::to_string(local_world)},
          {"NODE_RANK", node},
          {"GROUP_RANK", node},
          {"PET_MASTER_ADDR", master->address},
          {"PET_MASTER_PORT", port},
          {"PET_NNODES", std::to_string(nodes)},
          {"PET_NODE_RANK", node},
          {"PET_NPROC_PER_NODE", std::to_string(local_world)}};
}

std::map<std::string, std::string> jax_env(const std::vector<Seat>& gang, const ReplicaId& replica) {
  int processes = 0, process = 0;
  const Seat* first = nullptr;
  for (const Seat& seat : gang) {
    if (seat.replica.role == Role::Tensorboard) continue;
    if (first == nullptr) first = &seat;  // the decider comes first
    if (seat.replica == replica) process = processes;
    ++processes;
  }
  INVARIANT(first != nullptr, "a gang has who decides");
  const std::string count = std::to_string(processes), number = std::to_string(process), port = std::to_string(first->port);
  return {{"JAX_COORDINATOR_ADDRESS", endpoint(*first)},
          {"JAX_COORDINATOR_PORT", port},
          {"JAX_NUM_PROCESSES", count},
          {"JAX_PROCESS_ID", number},
          {"COORDINATOR_ADDRESS", first->address},
          {"COORDINATOR_PORT", port},
          {"NUM_PROCESSES", count},
          {"PROCESS_ID", number}};
}

}  // namespace

bool is_jax_variable(std::string_view name) {
  static const auto variables = jax_env({Seat{}}, {});
  return variables.contains(std::string(name));
}

bool is_pytorch_variable(std::string_view name) {
  static const auto variables = pytorch_env({}, {Seat{}}, {});
  return variables.contains(std::string(name));
}

std::map<std::string, std::string> cluster_env(const Spec& spec, const std::vector<Seat>& gang,
                                               const ReplicaId& replica) {
  // On several hosts there is a build on each: they are a gang, and no cluster.
  if (replica.role == Role::Tensorboard || replica.role == Role::Build) return {};
  if (spec.framework == Framework::Pytorch) return pytorch_env(spec, gang, replica);
  if (spec.framework == Framework::Jax) return jax_env(gang, replica);
  const auto in_cluster = std::count_if(gang.begin(), gang.end(), [](const Seat& seat) {
    return seat.replica.role != Role::Tensorboard;
  });
  if (!speaks_tf_config(spec.framework) || in_cluster < 2) return {};

  std::map<std::string, std::map<int, std::string>> cluster;  // type -> index -> host:port
  for (const Seat& seat : gang) {
    if (seat.replica.role == Role::Tensorboard) continue;
    const TensorflowTask task = tensorflow_task(spec, seat.replica);
    // Training waits for every process of its cluster, and an evaluator never joins; the evaluator
    // in turn must find itself in the cluster it is given.
    if (seat.replica.role == Role::Evaluator && replica.role != Role::Evaluator) continue;
    cluster[task.type][task.index] = endpoint(seat);
  }
  nlohmann::ordered_json config;
  for (const auto& [type, members] : cluster) {
    nlohmann::ordered_json& list = config["cluster"][type] = nlohmann::ordered_json::array();
    for (const auto& [index, address] : members) list.push_back(address);
  }
  const TensorflowTask own = tensorflow_task(spec, replica);
  config["task"]["type"] = own.type;
  config["task"]["index"] = own.index;
  // Bytes that are not UTF-8 can't come from a checked address; replacing them beats throwing.
  return {
      {"TF_CONFIG", config.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)}};
}

}  // namespace dtrain
