#include "schema/cluster_env.h"

#include <doctest/doctest.h>

#include <algorithm>

using namespace dtrain;

namespace {

Spec make_spec(std::initializer_list<std::pair<Role, int>> roles) {
  Spec spec;
  spec.framework = Framework::Tensorflow;
  for (const auto& [role, count] : roles) {
    RoleSpec one;
    one.role = role;
    one.count = count;
    spec.roles.push_back(one);
  }
  return spec;
}

// One seat a replica, each on a port of its own.
std::vector<Seat> seat(const Spec& spec, const std::string& address = "10.0.0.1") {
  std::vector<Seat> gang;
  for (const RoleSpec& role : spec.roles) {
    for (int i = 1; i <= role.count; ++i) {
      Seat one;
      one.replica = {{4, 0}, role.role, is_numbered(role.role) ? static_cast<uint32_t>(i) : 0};
      one.address = address;
      one.port = 20000 + static_cast<int>(gang.size());
      gang.push_back(one);
    }
  }
  return gang;
}

std::string tf_config(const Spec& spec, const std::string& id, const std::string& address = "h") {
  const auto env = cluster_env(spec, seat(spec, address), *parse_replica_id(id));
  return env.empty() ? "" : env.at("TF_CONFIG");
}

}  // namespace

TEST_CASE("the master is worker 0") {
  const Spec spec = make_spec({{Role::Master, 1}, {Role::Worker, 2}, {Role::Ps, 2}});
  const std::string cluster =
      R"({"cluster":{"ps":["h:20003","h:20004"],"worker":["h:20000","h:20001","h:20002"]},)";
  CHECK(tf_config(spec, "4.master") == cluster + R"("task":{"type":"worker","index":0}})");
  CHECK(tf_config(spec, "4.worker.1") == cluster + R"("task":{"type":"worker","index":1}})");
  CHECK(tf_config(spec, "4.worker.2") == cluster + R"("task":{"type":"worker","index":2}})");
  CHECK(tf_config(spec, "4.ps.2") == cluster + R"("task":{"type":"ps","index":1}})");
}

TEST_CASE("a chief is a process of its own, and worker 1 is index 0") {
  const Spec spec = make_spec({{Role::Chief, 1}, {Role::Worker, 2}, {Role::Ps, 1}});
  const std::string cluster =
      R"({"cluster":{"chief":["h:20000"],"ps":["h:20003"],"worker":["h:20001","h:20002"]},)";
  CHECK(tf_config(spec, "4.chief") == cluster + R"("task":{"type":"chief","index":0}})");
  CHECK(tf_config(spec, "4.worker.1") == cluster + R"("task":{"type":"worker","index":0}})");
  CHECK(tf_config(spec, "4.ps.1") == cluster + R"("task":{"type":"ps","index":0}})");
}

TEST_CASE("an evaluator is in its own cluster and in nobody else's") {
  const Spec spec = make_spec({{Role::Chief, 1}, {Role::Worker, 1}, {Role::Evaluator, 2}});
  CHECK(
      tf_config(spec, "4.chief") ==
      R"({"cluster":{"chief":["h:20000"],"worker":["h:20001"]},"task":{"type":"chief","index":0}})");
  CHECK(
      tf_config(spec, "4.evaluator.2") ==
      R"({"cluster":{"chief":["h:20000"],"evaluator":["h:20002","h:20003"],"worker":["h:20001"]},)"
      R"("task":{"type":"evaluator","index":1}})");
}

TEST_CASE("the list is in index order, wherever the seats come from") {
  const Spec spec = make_spec({{Role::Master, 1}, {Role::Worker, 11}});
  std::vector<Seat> gang = seat(spec, "h");
  std::reverse(gang.begin(), gang.end());
  const std::string config =
      cluster_env(spec, gang, *parse_replica_id("4.worker.11")).at("TF_CONFIG");
  CHECK(config.starts_with(R"({"cluster":{"worker":["h:20000","h:20001","h:20002",)"));
  CHECK(config.ends_with(R"("h:20011"]},"task":{"type":"worker","index":11}})"));
}

TEST_CASE("who is alone, or speaks another language, gets nothing") {
  CHECK(tf_config(make_spec({{Role::Train, 1}}), "4.train").empty());
  CHECK(tf_config(make_spec({{Role::Master, 1}}), "4.master").empty());
  Spec spec = make_spec({{Role::Master, 1}, {Role::Worker, 1}});
  spec.framework = Framework::Command;
  CHECK(tf_config(spec, "4.master").empty());
}

TEST_CASE("PyTorch's processes are told their ranks, and where the first one is") {
  Spec spec = make_spec({{Role::Master, 1}, {Role::Worker, 2}});
  spec.framework = Framework::Pytorch;
  std::vector<Seat> gang = seat(spec, "fd00::1");
  gang[0].address = "10.0.0.7";
  auto env = cluster_env(spec, gang, *parse_replica_id("4.worker.2"));
  CHECK(env == std::map<std::string, std::string>{{"MASTER_ADDR", "10.0.0.7"},
                                                  {"MASTER_PORT", "20000"},
                                                  {"WORLD_SIZE", "3"},
                                                  {"RANK", "2"},
                                                  {"LOCAL_RANK", "0"},
                                                  {"LOCAL_WORLD_SIZE", "1"},
                                                  {"NODE_RANK", "2"},
                                                  {"GROUP_RANK", "2"},
                                                  {"PET_MASTER_ADDR", "10.0.0.7"},
                                                  {"PET_MASTER_PORT", "20000"},
                                                  {"PET_NNODES", "3"},
                                                  {"PET_NODE_RANK", "2"},
                                                  {"PET_NPROC_PER_NODE", "1"}});
  for (const auto& [name, value] : env) CHECK(is_pytorch_variable(name));
  CHECK_FALSE(is_pytorch_variable("OMP_NUM_THREADS"));
  env = cluster_env(spec, gang, *parse_replica_id("4.master"));
  CHECK(env["RANK"] == "0");
  CHECK(cluster_env(spec, gang, *parse_replica_id("4.tensorboard")).empty());
}

TEST_CASE("JAX's processes are told their numbers, and where the first one is, in both ways of Kubeflow") {
  Spec spec = make_spec({{Role::Master, 1}, {Role::Worker, 2}, {Role::Tensorboard, 1}});
  spec.framework = Framework::Jax;
  const std::vector<Seat> gang = seat(spec, "fd00::1");
  const auto env = cluster_env(spec, gang, *parse_replica_id("4.worker.2"));
  CHECK(env == std::map<std::string, std::string>{{"JAX_COORDINATOR_ADDRESS", "[fd00::1]:20000"},
                                                  {"JAX_COORDINATOR_PORT", "20000"},
                                                  {"JAX_NUM_PROCESSES", "3"},
                                                  {"JAX_PROCESS_ID", "2"},
                                                  {"COORDINATOR_ADDRESS", "fd00::1"},
                                                  {"COORDINATOR_PORT", "20000"},
                                                  {"NUM_PROCESSES", "3"},
                                                  {"PROCESS_ID", "2"}});
  for (const auto& [name, value] : env) CHECK(is_jax_variable(name));
  CHECK_FALSE(is_jax_variable("JAX_PLATFORMS"));
  CHECK(cluster_env(spec, gang, *parse_replica_id("4.master")).at("PROCESS_ID") == "0");
  CHECK(cluster_env(spec, gang, *parse_replica_id("4.tensorboard")).empty());
  spec = make_spec({{Role::Train, 1}});
  spec.framework = Framework::Jax;
  CHECK(cluster_env(spec, seat(spec), *parse_replica_id("4.train")).at("JAX_NUM_PROCESSES") == "1");
}

TEST_CASE("PyTorch's ranks count the processes that torchrun starts in each replica") {
  Spec spec = make_spec({{Role::Master, 1}, {Role::Worker, 2}});
  spec.framework = Framework::Pytorch;
  spec.pytorch.nproc_per_node = 4;
  auto env = cluster_env(spec, seat(spec), *parse_replica_id("4.worker.2"));
  CHECK(env["WORLD_SIZE"] == "12");
  CHECK(env["RANK"] == "8");
  CHECK(env["LOCAL_WORLD_SIZE"] == "4");
  CHECK(env["NODE_RANK"] == "2");
  CHECK(env["PET_NNODES"] == "3");
  CHECK(env["PET_NPROC_PER_NODE"] == "4");
  // One for each GPU; replicas may have different ones, or none.
  spec.pytorch.nproc_per_node = PytorchOptions::kOnePerGpu;
  std::vector<Seat> gang = seat(spec);
  gang[0].gpus = {2, 3, 5};
  gang[1].gpus = {0, 1};
  env = cluster_env(spec, gang, *parse_replica_id("4.worker.2"));
  CHECK(env["WORLD_SIZE"] == "6");
  CHECK(env["RANK"] == "5");
  CHECK(env["PET_NPROC_PER_NODE"] == "1");
}

TEST_CASE("PyTorch alone is a gang of one, with the address of its own seat") {
  Spec spec = make_spec({{Role::Train, 1}});
  spec.framework = Framework::Pytorch;
  auto env = cluster_env(spec, seat(spec, "127.0.0.1"), *parse_replica_id("4.train"));
  CHECK(env["WORLD_SIZE"] == "1");
  CHECK(env["RANK"] == "0");
  CHECK(env["MASTER_ADDR"] == "127.0.0.1");
}

TEST_CASE("builds on several hosts are told of no cluster") {
  Spec spec = make_spec({{Role::Master, 1}, {Role::Worker, 1}});
  std::vector<Seat> builds(2);
  for (uint32_t i = 0; i < 2; ++i) builds[i].replica = {{4, 0}, Role::Build, i + 1};
  for (const Framework framework : {Framework::Tensorflow, Framework::Engine, Framework::Pytorch}) {
    spec.framework = framework;
    CHECK(cluster_env(spec, builds, builds[0].replica).empty());
  }
}

TEST_CASE("an IPv6 address stands in brackets") {
  const Spec spec = make_spec({{Role::Master, 1}, {Role::Worker, 1}});
  CHECK(tf_config(spec, "4.master", "fd00::1") ==
        R"({"cluster":{"worker":["[fd00::1]:20000","[fd00::1]:20001"]},)"
        R"("task":{"type":"worker","index":0}})");
}
