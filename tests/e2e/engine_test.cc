// framework: engine, up to where the engine itself begins: a stand-in for dtrain-engine prints what
// it was started with.
#include <doctest/doctest.h>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"

using namespace dtrain::tests;

namespace {

constexpr const char* kYaml = R"(project: digits
train:
  framework: engine
  resources: {cpus: 0.2, mem: 64MiB}
  engine:
    model: {mlp: {hidden: [16]}}
    data: {train: data/train}
    strategy: {parameter-server: {mode: async}}
    batch: "{{ batch }}"
    distributed: {worker: 3, ps: 2}
  parameters: {batch: 32}
)";

// dtrain in a folder of the cluster's, with nothing beside it yet.
fs::path own_program(Cluster& cluster) {
  const fs::path folder = cluster.folder() / "bin";
  fs::create_directories(folder);
  const fs::path program = folder / "dtrain";
  std::error_code other_file_system;
  fs::create_hard_link(std::string(BIN_DIR) + "/dtrain", program, other_file_system);
  if (other_file_system) fs::copy_file(std::string(BIN_DIR) + "/dtrain", program);
  cluster.use(program);
  return folder;
}

void put_stand_in(const fs::path& folder) {
  fs::copy_file(ENGINE_STAND_IN, folder / "dtrain-engine");
}

}  // namespace

TEST_CASE(
    "the engine's roles know their cluster and their spec, and servers end with the experiment") {
  Cluster cluster;
  put_stand_in(own_program(cluster));
  const fs::path project =
      cluster.project("digits", {{"dtrain.yml", kYaml}, {"data/train", "one two\n"}});

  const Output train = cluster.run({"train", "-p", "batch=48"}, project);
  CHECK_MESSAGE(train.code == 0, train.all());
  for (const char* line :
       {"task=worker index=0 workers=3 servers=2 batch=48 rate=0.1 threads=1 data=one two",
        "task=worker index=1 workers=3", "task=worker index=2 workers=3",
        "task=ps index=0 workers=3", "task=ps index=1 workers=3 servers=2 batch=48"}) {
    CHECK_MESSAGE(train.out.find(line) != std::string::npos, line, " in ", train.all());
  }
  const Json shown = facts(cluster.run({"status", "1", "--json"}));
  CHECK(shown["state"] == "FINISHED");
  for (const char* id : {"1.ps.1", "1.ps.2"}) {
    const Json& server = with_id(shown["replicas"], id);
    CHECK(server["state"] == "FINISHED");
    CHECK(server["reason"] == "ended with the experiment");
  }
}

TEST_CASE("each member has the values of its own, and one process has no TF_CONFIG") {
  Cluster cluster;
  put_stand_in(own_program(cluster));
  const fs::path project = cluster.project("digits", {{"dtrain.yml", R"(project: digits
train:
  framework: engine
  resources: {cpus: 0.2, mem: 64MiB}
  data: {sets: )" + (cluster.folder() / "sets").string() + R"(}
  engine:
    model: mlp
    data: {train: /data/sets/train}
    batch: [8, 16]
    optimizer: {sgd: {learning-rate: "{{ rate }}"}}
  parameters: {rate: [0.5, 0.25]}
)"}});
  fs::create_directories(cluster.folder() / "sets");
  write_file(cluster.folder() / "sets/train", "a set\n");

  const Output train = cluster.run({"train"}, project);
  CHECK_MESSAGE(train.code == 0, train.all());
  for (const char* line : {"workers=1 servers=0 batch=8 rate=0.5 threads=1 data=a set",
                           "batch=8 rate=0.25", "batch=16 rate=0.5", "batch=16 rate=0.25"}) {
    CHECK_MESSAGE(train.out.find(line) != std::string::npos, line, " in ", train.all());
  }
}

TEST_CASE(
    "without dtrain-engine on any host it is said which, and no restart is spent on a refusal") {
  Cluster cluster;
  const fs::path folder = own_program(cluster);
  cluster.env["PATH"] = "/usr/bin:/bin";
  const fs::path project = cluster.project("digits", {{"dtrain.yml", kYaml}, {"data/train", ""}});

  const Output lacking = cluster.run({"train"}, project);
  CHECK(lacking.code != 0);
  CHECK_MESSAGE(lacking.all().find("dtrain-engine is neither in " + folder.string() +
                                   " nor in PATH") != std::string::npos,
                lacking.all());

  put_stand_in(folder);
  // data/train is empty: the engine refuses, and says so at once.
  const Output refused = cluster.run(
      {"train", "--set", "train.engine.distributed=false", "--set", "train.engine.strategy=single"},
      project);
  CHECK_MESSAGE(refused.code == 2, refused.all());
  CHECK(refused.all().find("can't read data/train") != std::string::npos);
  CHECK(refused.all().find("restart 1 of 3") == std::string::npos);
}

TEST_CASE("digits are learned by a master, workers and parameter servers, through all of dtrain") {
  Cluster cluster;
  const fs::path project = cluster.project("digits", {{"dtrain.yml", R"(project: digits
train:
  framework: engine
  resources: {cpus: 0.2, mem: 128MiB}
  engine:
    model: {mlp: {hidden: [32]}}
    data: {train: data/train, test: data/test}
    strategy: {parameter-server: {mode: [async, sync]}}
    epochs: 4
    distributed: {master: 1, worker: 2, ps: 1}
)"}});
  Command digits;
  digits.argv = {std::string(BIN_DIR) + "/dtrain-engine", "data", "digits", "--train", "4000", "--test", "500"};
  digits.directory = project;
  const Output drawn = Process(digits).wait();
  REQUIRE_MESSAGE(drawn.code == 0, drawn.all());

  const Output train = cluster.run({"train"}, project);
  CHECK_MESSAGE(train.code == 0, train.all());
  CHECK(train.out.find("accuracy=") != std::string::npos);
  const Json shown = facts(cluster.run({"status", "1.1", "--json"}));
  CHECK(shown["state"] == "FINISHED");
  CHECK(with_id(shown["replicas"], "1.1.ps.1")["reason"] == "ended with the experiment");
  for (const char* member : {"1.1", "1.2"}) {
    std::string output = cluster.run({"output", "path", member}).out;
    output.erase(output.find_last_not_of('\n') + 1);
    CHECK(fs::file_size(fs::path(output) / "model.safetensors") > 100'000);
  }
}
