#include "runner/environment.h"

#include <doctest/doctest.h>

namespace dtrain::runner {
namespace {

struct Example {
  Example() {
    RoleSpec role;
    role.run = {"true"};
    inputs.spec.roles = {role};
    inputs.spec.parameters = {{"learning-rate", {"0.1"}}};
    inputs.inherited = {{"PATH", "/usr/bin"}, {"HOME", "/home/node"}};
    inputs.output_dir = "/out/4.2";
    inputs.after_dir = "/out/3";
    inputs.key = "k";
    inputs.submission = "s1";
    inputs.attempt = 3;
    seat.replica = {{4, 2}, Role::Train, 0};
    seat.cpus = 2.5;
    inputs.gang = {seat};
  }
  Environment env() const { return replica_environment(inputs, seat); }
  EnvironmentInputs inputs;
  Seat seat;
};

TEST_CASE("a replica gets what is promised") {
  const Environment env = Example().env();
  CHECK(env.at("OUTPUT_DIR") == "/out/4.2");
  CHECK(env.at("AFTER_DIR") == "/out/3");
  CHECK(env.at("EXPERIMENT_ID") == "4.2");
  CHECK(env.at("DTRAIN_REPLICA") == "4.2.train");
  CHECK(env.at("DTRAIN_ATTEMPT") == "3");
  CHECK(env.at("DTRAIN_KEY") == "k");
  CHECK(env.at("DTRAIN_SUBMISSION") == "s1");
  CHECK(env.at("LEARNING_RATE") == "0.1");
  CHECK(env.at("PYTHONUNBUFFERED") == "1");
  CHECK(env.at("OMP_NUM_THREADS") == "3");
  CHECK(env.at("HOME") == "/home/node");
  CHECK(env.at("PATH") == "/usr/bin");
  CHECK(env.at("CUDA_DEVICE_ORDER") == "PCI_BUS_ID");
  CHECK(!env.contains("TF_CONFIG"));
  Example first;
  first.inputs.after_dir = "";
  CHECK(!first.env().contains("AFTER_DIR"));
}

TEST_CASE("without GPUs asked for, none are visible, whatever the user's environment says") {
  Example example;
  example.inputs.spec.env = {{"CUDA_VISIBLE_DEVICES", "0,1"}};
  CHECK(example.env().at("CUDA_VISIBLE_DEVICES").empty());
  example.seat.gpus = {1, 3};
  CHECK(example.env().at("CUDA_VISIBLE_DEVICES") == "1,3");
}

TEST_CASE("where a gang spans hosts Gloo is told the interface, unless the user names one") {
  Example example;
  CHECK(!example.env().contains("GLOO_SOCKET_IFNAME"));
  example.inputs.interface = "eth0";
  CHECK(example.env().at("GLOO_SOCKET_IFNAME") == "eth0");
  example.inputs.spec.env = {{"GLOO_SOCKET_IFNAME", "ib0"}};
  CHECK(example.env().at("GLOO_SOCKET_IFNAME") == "ib0");
}

TEST_CASE("what the user sets stays, but for what others depend on") {
  Example example;
  example.inputs.spec.env = {
      {"PYTHONUNBUFFERED", ""}, {"OMP_NUM_THREADS", "8"}, {"OUTPUT_DIR", "/mine"}};
  example.inputs.secrets = {{"API_KEY", "s"}};
  const Environment env = example.env();
  CHECK(env.at("PYTHONUNBUFFERED").empty());
  CHECK(env.at("OMP_NUM_THREADS") == "8");
  CHECK(env.at("OUTPUT_DIR") == "/out/4.2");
  CHECK(env.at("API_KEY") == "s");
}

TEST_CASE("the chosen python comes first, the stand-in for a missing one last") {
  Example example;
  example.inputs.python.path_first = {"/venv/bin"};
  example.inputs.python.path_last = {"/home/shims"};
  example.inputs.python.variables = {{"VIRTUAL_ENV", "/venv"}};
  CHECK(example.env().at("PATH") == "/venv/bin:/usr/bin:/home/shims");
  CHECK(example.env().at("VIRTUAL_ENV") == "/venv");
}

TEST_CASE("data sets are named one by one and together") {
  Example example;
  example.inputs.spec.data = {{"my-project", "/mnt/sets/x"}};
  example.inputs.data_dir = "/launch/data";
  CHECK(example.env().at("DATA_DIR") == "/launch/data");
  CHECK(example.env().at("MY_PROJECT_DIR") == "/mnt/sets/x");
  example.inputs.data_dir = "/data";
  example.inputs.data_is_mounted = true;
  CHECK(example.env().at("DATA_DIR") == "/data");
  CHECK(example.env().at("MY_PROJECT_DIR") == "/data/my-project");
}

TEST_CASE("only listed variables are inherited") {
  const Environment kept = inherited_environment({{"HOME", "/h"},
                                                  {"LC_ALL", "C"},
                                                  {"https_proxy", "p"},
                                                  {"AWS_SECRET", "s"},
                                                  {"TF_CONFIG", "{}"},
                                                  {"TERM", "xterm"}});
  CHECK(kept.size() == 4);
  CHECK(kept.at("HOME") == "/h");
  CHECK(kept.at("LC_ALL") == "C");
  CHECK(kept.at("https_proxy") == "p");
  CHECK(!kept.at("PATH").empty());
}

TEST_CASE("the engine's replicas have its spec, and nobody else has") {
  Example example;
  CHECK(!example.env().contains("DTRAIN_ENGINE"));
  example.inputs.spec.framework = Framework::Engine;
  example.inputs.engine = "{}";
  CHECK(example.env().at("DTRAIN_ENGINE") == "{}");
  CHECK(example.env().at("OMP_NUM_THREADS") == "3");
  example.seat.replica.role = Role::Tensorboard;
  CHECK(!example.env().contains("DTRAIN_ENGINE"));
}

}  // namespace
}  // namespace dtrain::runner
