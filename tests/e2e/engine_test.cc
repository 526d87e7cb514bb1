// framework: engine, up to where the engine itself begins: a stand-in for dtrain-engine prints what
// it was started with.
#include <doctest/doctest.h>

#include <csignal>

#include "tests/support/cluster.h"
#include "tests/support/digits.h"
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

namespace {

constexpr const char* kDigits = R"(project: digits
train:
  framework: engine
  resources: {cpus: 0.2, mem: 128MiB}
  engine:
    model: {mlp: {hidden: [32]}}
    data: {train: data/train, test: data/test}
    optimizer: {sgd: {momentum: 0.9}}
    checkpoint: {every: 50 steps}
    epochs: 4
)";

bool holds(const Output& output, const std::string& text) {
  const bool found = output.all().find(text) != std::string::npos;
  if (!found) MESSAGE(text, " is not in ", output.all());
  return found;
}

}  // namespace

TEST_CASE("rerun --resume goes on from the newest checkpoint, split another way, to the same bits") {
  Cluster cluster;
  cluster.own_ports();
  const fs::path project = digits_project(cluster, kDigits);
  const Output first = cluster.run({"train"}, project);
  REQUIRE_MESSAGE(first.code == 0, first.all());
  const Output whole = cluster.run({"train", "--set", "train.engine.epochs=60"}, project);
  REQUIRE_MESSAGE(whole.code == 0, whole.all());

  // With more epochs than before.
  const Output longer = cluster.run({"rerun", "1", "--resume", "--set", "train.engine.epochs=60"}, project);
  CHECK_MESSAGE(longer.code == 0, longer.all());
  CHECK(holds(longer, "Experiment 3 goes on from the newest checkpoint of 1"));
  CHECK(holds(longer, "resumed_at_step=252 from="));
  CHECK(longer.all().find("epoch=4 ") == std::string::npos);
  CHECK(model_of(cluster, "3") == model_of(cluster, "2"));
  CHECK(holds(cluster.run({"status", "3"}, project), "/outputs/1\n"));

  // Killed in the middle, and then by workers and a server.
  auto killed = cluster.start({"train", "--set", "train.engine.epochs=60"}, project);
  killed->wait_for("epoch=3");
  CHECK(cluster.run({"kill", "4"}, project).code == 0);
  CHECK(killed->wait().code == 130);
  const Output split = cluster.run({"rerun", "4", "--resume", "--set", "train.engine.distributed={worker: 2, ps: 1}",
                                    "--set", "train.engine.strategy={parameter-server: {mode: sync}}"},
                                   project);
  CHECK_MESSAGE(split.code == 0, split.all());
  CHECK(holds(split, "resumed_at_step="));
  CHECK(split.all().find("epoch=1 ") == std::string::npos);
  CHECK(model_of(cluster, "5") == model_of(cluster, "2"));

  const Output shorter = cluster.run({"rerun", "1", "--resume", "--set", "train.engine.epochs=2"}, project);
  CHECK(shorter.code == 2);
  CHECK(holds(shorter, "has 252 steps behind it, and this training is of 126 in all"));
}

TEST_CASE("rerun --resume says what it can't go on from before anything starts") {
  Cluster cluster;
  const fs::path project = digits_project(cluster, kDigits, "400");
  REQUIRE(cluster.run({"train"}, project).code == 0);
  const Output over = cluster.run({"rerun", "1", "--resume"}, project);
  CHECK(over.code == 2);
  CHECK(holds(over, "1 was trained to its end"));
  CHECK(holds(over, "--set train.engine.epochs="));
  const Output seed = cluster.run({"rerun", "1", "--resume", "--set", "train.engine.epochs=9", "--set", "train.engine.seed=7"}, project);
  CHECK(seed.code == 2);
  CHECK(holds(seed, "seed 42, and this one has 7"));
  // 2 has failed before its first checkpoint; 3 is a set.
  const Output nothing = cluster.run({"rerun", "2", "--resume"}, project);
  CHECK(nothing.code == 2);
  CHECK(holds(nothing, "2 has no checkpoint to go on from"));
  REQUIRE(cluster.run({"train", "--set", "train.engine.epochs=[1, 2]"}, project).code == 0);
  const Output set = cluster.run({"rerun", "3", "--resume"}, project);
  CHECK(set.code == 2);
  CHECK(holds(set, "dtrain rerun 3.1 --resume"));
  const Output member = cluster.run({"rerun", "3.1", "--resume", "--set", "train.engine.epochs=3"}, project);
  CHECK_MESSAGE(member.code == 0, member.all());
  CHECK(holds(member, "resumed_at_step=7 from="));
}

TEST_CASE("metrics of a training that was killed and went on count each step once") {
  Cluster cluster;
  const fs::path project = digits_project(cluster, kDigits);
  // Saved seldom, so that the restart repeats epochs that the event files tell of already.
  auto train = cluster.start(
      {"train", "--set", "train.engine.epochs=60", "--set", "train.engine.checkpoint.every=8 epochs"}, project);
  train->wait_for("epoch=14 ");
  kill_all(cluster.processes("dtrain-engine train"));
  const Output output = train->wait();
  CHECK_MESSAGE(output.code == 0, output.all());
  CHECK(holds(output, "resumed_at_step="));
  const Json metrics = facts(cluster.run({"status", "1", "--json"}))["metrics"];
  for (const char* name : {"accuracy", "loss"}) {
    CHECK(metrics[name]["count"] == 60);
    CHECK(metrics[name]["step"] == 60 * 63);
  }
}

TEST_CASE("the program of another framework learns where its earlier output lies") {
  Cluster cluster;
  const fs::path project = cluster.project(R"(project: count
train:
  resources: {cpus: 0.1, mem: 16MiB}
  env: {LANG: C}
  run: n=$(cat "${RESUME_DIR:-/nowhere}/n" 2>/dev/null || echo 0); echo $((n + 1)) > "$OUTPUT_DIR/n"; echo counted $((n + 1))
)");
  CHECK(holds(cluster.run({"train"}, project), "counted 1"));
  const Output second = cluster.run({"rerun", "1", "--resume"}, project);
  CHECK(holds(second, "counted 2"));
  CHECK(holds(second, "RESUME_DIR names what 1 wrote"));
  CHECK(holds(cluster.run({"rerun", "2", "--resume"}, project), "counted 3"));
  CHECK(holds(cluster.run({"rerun", "1"}, project), "counted 1"));
  // Names from the shell make a list of it.
  CHECK(holds(cluster.run({"train", "--set", "train.env=[HOME, 'A=b, c']"}, project), "counted 1"));
  const Output named = cluster.run({"rerun", "5", "--resume"}, project);
  CHECK_MESSAGE(holds(named, "counted 2"), named.all());
  CHECK(holds(cluster.run({"rerun", "6", "--resume"}, project), "counted 3"));
}

TEST_CASE("digits are learned by a master, workers and parameter servers, through all of dtrain") {
  Cluster cluster;
  cluster.own_ports();
  const fs::path project = digits_project(cluster, R"(project: digits
train:
  framework: engine
  resources: {cpus: 0.2, mem: 128MiB}
  engine:
    model: {mlp: {hidden: [32]}}
    data: {train: data/train, test: data/test}
    strategy: {parameter-server: {mode: [async, sync]}}
    epochs: 4
    distributed: {master: 1, worker: 2, ps: 1}
)");
  const Output train = cluster.run({"train"}, project);
  CHECK_MESSAGE(train.code == 0, train.all());
  CHECK(train.out.find("accuracy=") != std::string::npos);
  const Json shown = facts(cluster.run({"status", "1.1", "--json"}));
  CHECK(shown["state"] == "FINISHED");
  CHECK(with_id(shown["replicas"], "1.1.ps.1")["reason"] == "ended with the experiment");
  for (const char* member : {"1.1", "1.2"}) {
    CHECK(fs::file_size(output_of(cluster, member) / "model.safetensors") > 100'000);
  }
}

TEST_CASE("data that can't be read is named as the project names it") {
  Cluster cluster;
  const fs::path project = cluster.project("digits", {{"dtrain.yml", kDigits}, {"data/train/x", "1"}, {"data/test/x", "1"}});
  const Output train = cluster.run({"train"}, project);
  CHECK(train.code == 2);
  CHECK(holds(train, "data/train"));
  CHECK(train.all().find("/data/train") == std::string::npos);
}

TEST_CASE("a seed that no digits have is refused, and not taken for another") {
  const Cluster cluster;
  for (const char* seed : {"-1", "99999999999999999999"}) {
    Command digits = cluster.command({}, cluster.folder());
    digits.argv = {BIN_DIR "/dtrain-engine", "data", "digits", "--train", "1", "--test", "1", "--seed", seed};
    const Output output = run(digits);
    CHECK_MESSAGE(output.code == 2, output.all());
    CHECK(output.err.find("--seed") != std::string::npos);
    CHECK_FALSE(fs::exists(cluster.folder() / "data"));
  }
}
