// framework: engine, whose processes are killed while they train: who starts again, who doesn't notice, and what
// comes out.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>

#include "tests/support/cluster.h"
#include "tests/support/digits.h"
#include "tests/support/facts.h"

using namespace dtrain::tests;

namespace {

constexpr const char* kLongTraining = R"(project: digits
train:
  framework: engine
  resources: {cpus: 0.2, mem: 128MiB}
  engine:
    model: {mlp: {hidden: [32]}}
    data: {train: data/train, test: data/test}
    checkpoint: {every: 5 epochs}
    epochs: 80
)";

fs::path long_training(Cluster& cluster, const std::string& strategy_and_roles) {
  cluster.own_ports();
  return digits_project(cluster, kLongTraining + strategy_and_roles);
}

Json replicas(Cluster& cluster, const std::string& id) {
  return facts(cluster.run({"status", id, "--json"}))["replicas"];
}

// The replicas once they train.
Json training(Cluster& cluster, Process& train, const std::string& id) {
  train.wait_for(" epoch=");
  const Json now = replicas(cluster, id);
  for (const Json& replica : now) REQUIRE(replica["state"] == "RUNNING");
  return now;
}

void send(const Json& replicas, const std::string& id, int signal) {
  REQUIRE(::kill(with_id(replicas, id)["pid"].get<pid_t>(), signal) == 0);
}

// All but one are the processes that they were.
void check_undisturbed(const Json& before, const Json& after, const std::string& but) {
  for (const Json& replica : after) {
    CAPTURE(replica["id"]);
    if (replica["id"] == but) continue;
    const Json& was = with_id(before, replica["id"]);
    CHECK(replica["state"] == "FINISHED");
    for (const char* key : {"pid", "attempt", "started_unix_ms"}) CHECK(replica[key] == was[key]);
  }
}

// What a process was started with.
std::string variable(const Json& replica, const std::string& name) {
  const std::string all = '\0' + read_file("/proc/" + std::to_string(replica["pid"].get<pid_t>()) + "/environ");
  const size_t at = all.find('\0' + name + '=');
  REQUIRE(at != std::string::npos);
  return all.c_str() + at + name.size() + 2;
}

// The number behind the first `key` from there on.
double number(const std::string& text, const std::string& key, size_t from = 0) {
  const size_t at = text.find(key, from);
  REQUIRE_MESSAGE(at != std::string::npos, key, " is not in ", text);
  return std::stod(text.substr(at + key.size()));
}

// Until it, or a later one, is over: asynchronous workers may go through some while the master tests.
void wait_for_epoch(Process& train, double epoch) {
  do train.wait_for_next(" epoch=");
  while (number(train.out(), " epoch=", train.out().rfind(" epoch=")) < epoch);
}

long newest_checkpoint(const fs::path& output) {
  long newest = 0;
  for (const auto& entry : fs::directory_iterator(output / "checkpoints")) {
    const std::string name = entry.path().filename();
    if (name.starts_with("step-")) newest = std::max(newest, std::stol(name.substr(5)));
  }
  return newest;
}

constexpr const char* kModel = "model.safetensors";

}  // namespace

TEST_CASE("a parameter server that is killed starts again alone, with all that it knew") {
  Cluster cluster;
  const fs::path project = long_training(cluster, R"(    strategy: {parameter-server: {mode: async}}
    distributed: {worker: 2, ps: 1}
)");
  auto train = cluster.start({"train"}, project);
  const Json before = training(cluster, *train, "1");
  const Json& server = with_id(before, "1.ps.1");
  const std::string output_dir = variable(server, "OUTPUT_DIR");
  wait_for_epoch(*train, 15);
  send(before, "1.ps.1", SIGKILL);
  const auto killed = std::chrono::steady_clock::now();

  train->wait_for_next("serving at ");
  const Json again = with_id(replicas(cluster, "1"), "1.ps.1");
  CHECK(again["pid"] != server["pid"]);
  CHECK(again["port"] == server["port"]);
  CHECK(variable(again, "OUTPUT_DIR") == output_dir);
  CHECK(variable(again, "DTRAIN_ATTEMPT") == "2");
  // By which it knows its own, whatever other daemons have an experiment 1.
  CHECK(variable(again, "DTRAIN_SUBMISSION").size() == 32);
  CHECK(variable(again, "DTRAIN_SUBMISSION") == variable(with_id(before, "1.master"), "DTRAIN_SUBMISSION"));
  train->wait_for_next(" epoch=");
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - killed;
  MESSAGE("the master went on ", static_cast<int>(took.count()), " ms after its server was killed");

  const Output output = train->wait();
  CHECK_MESSAGE(output.code == 0, output.all());
  // Parameters of a beginner would be as wrong as in the first epoch.
  const size_t served = output.out.rfind("serving at ");
  const double first = number(output.out, " loss=");
  CHECK_MESSAGE(number(output.out, " loss=", served) < first / 2, output.all());
  CHECK(output.out.find("epoch=80 ", served) != std::string::npos);
  CHECK(output.out.find("resumed_at_step=") == std::string::npos);
  const Json after = replicas(cluster, "1");
  check_undisturbed(before, after, "1.ps.1");
  CHECK(with_id(after, "1.ps.1")["attempt"] == 2);
  CHECK(with_id(after, "1.ps.1")["reason"] == "ended with the experiment");
  CHECK(fs::file_size(fs::path(output_dir) / kModel) > 100'000);
}

TEST_CASE("without an asynchronous worker that is killed the others train to the end") {
  Cluster cluster;
  const fs::path project = long_training(cluster, R"(    strategy: {parameter-server: {mode: async}}
    distributed: {worker: 3, ps: 1}
)");
  auto train = cluster.start({"train"}, project);
  const Json before = training(cluster, *train, "1");
  send(before, "1.worker.1", SIGKILL);
  const Output output = train->wait();
  CHECK_MESSAGE(output.code == 0, output.all());
  CHECK(output.out.find("epoch=80 ") != std::string::npos);
  CHECK(output.out.find("RESTARTING") == std::string::npos);
  const Json after = replicas(cluster, "1");
  check_undisturbed(before, after, "1.worker.1");
  const Json& lost = with_id(after, "1.worker.1");
  CHECK(lost["state"] == "FAILED");
  CHECK(lost["exit_code"] == 128 + SIGKILL);
  CHECK(lost["attempt"] == 1);
  CHECK(fs::file_size(output_of(cluster, "1") / kModel) > 100'000);
}

TEST_CASE("an asynchronous worker that may start again joins the others where they are") {
  Cluster cluster;
  const fs::path project = long_training(cluster, R"(    strategy: {parameter-server: {mode: async}}
    distributed: {worker: {count: 2, on-failure: restart}, ps: 1}
)");
  auto train = cluster.start({"train"}, project);
  train->wait_for("joined_at_step=");
  const Json before = training(cluster, *train, "1");
  send(before, "1.worker.1", SIGKILL);
  // However fast they are: the experiment doesn't end before the worker is back.
  send(before, "1.master", SIGSTOP);
  train->wait_for_next("joined_at_step=");
  send(before, "1.master", SIGCONT);
  const Output output = train->wait();
  CHECK_MESSAGE(output.code == 0, output.all());
  CHECK(output.out.find("epoch=80 ") != std::string::npos);
  const Json after = replicas(cluster, "1");
  check_undisturbed(before, after, "1.worker.1");
  const Json& back = with_id(after, "1.worker.1");
  CHECK(back["state"] == "FINISHED");
  CHECK(back["attempt"] == 2);
  CHECK(back["pid"] != with_id(before, "1.worker.1")["pid"]);
  CHECK(fs::file_size(output_of(cluster, "1") / kModel) > 100'000);
}

TEST_CASE("workers in step start again all, from the newest checkpoint, and come to the same bits") {
  Cluster cluster;
  std::string roles;
  SUBCASE("by all-reduce") {
    roles = "    strategy: multi-worker-mirrored\n    distributed: {worker: 2}\n";
  }
  SUBCASE("by a parameter server") {
    roles = "    strategy: {parameter-server: {mode: sync}}\n    distributed: {worker: 2, ps: 1}\n";
  }
  const fs::path project = long_training(cluster, roles);
  const Output whole = cluster.run({"train"}, project);
  REQUIRE_MESSAGE(whole.code == 0, whole.all());
  CHECK(whole.out.find("RESTARTING") == std::string::npos);

  auto train = cluster.start({"train"}, project);
  const Json before = training(cluster, *train, "2");
  train->wait_for("epoch=14 ");
  const long saved = newest_checkpoint(output_of(cluster, "2"));
  send(before, "2.worker.1", SIGKILL);
  const Output output = train->wait();
  CHECK_MESSAGE(output.code == 0, output.all());
  const double resumed = number(output.out, "resumed_at_step=");
  CHECK(saved > 0);
  CHECK(resumed >= saved);
  CHECK(output.out.find("epoch=80 ", output.out.find("resumed_at_step=")) != std::string::npos);
  const Json after = replicas(cluster, "2");
  CHECK(after.size() == before.size());
  for (const Json& replica : after) {
    CAPTURE(replica["id"]);
    CHECK(replica["state"] == "FINISHED");
    CHECK(replica["attempt"] == 2);
    CHECK(replica["pid"] != with_id(before, replica["id"])["pid"]);
  }
  CHECK(model_of(cluster, "2") == model_of(cluster, "1"));
}

TEST_CASE("what is asked to end saves the step that it is in, and goes on from there to the same bits") {
  Cluster cluster;
  std::string roles;
  SUBCASE("threads of one process") { roles = "    strategy: {mirrored: {devices: 2}}\n"; }
  SUBCASE("workers that sum their gradients") {
    roles = "    strategy: multi-worker-mirrored\n    distributed: {worker: 2}\n";
  }
  SUBCASE("stages of a pipeline") { roles = "    strategy: pipeline\n    distributed: {worker: 2}\n"; }
  const fs::path project = long_training(cluster, roles);
  const std::vector<std::string> once{"--set", "train.engine.epochs=160", "--set", "train.engine.checkpoint.every=160 epochs"};
  const auto with = [&](std::vector<std::string> words) {
    words.insert(words.end(), once.begin(), once.end());
    return words;
  };
  const Output whole = cluster.run(with({"train"}), project);
  REQUIRE_MESSAGE(whole.code == 0, whole.all());
  auto train = cluster.start(with({"train"}), project);
  train->wait_for("epoch=14 ");
  REQUIRE(cluster.run({"suspend", "2"}).code == 0);
  train->wait_for("--> SUSPENDED");
  const long saved = newest_checkpoint(output_of(cluster, "2"));
  CHECK(saved > number(train->out(), " step=", train->out().rfind(" epoch=")) - 1);
  CHECK(train->out().find(fmt::format("asked to end by TERM, after step {}", saved)) != std::string::npos);
  REQUIRE(cluster.run({"resume", "2"}).code == 0);
  const Output output = train->wait();
  CHECK_MESSAGE(output.code == 0, output.all());
  CHECK(number(output.out, "resumed_at_step=") == saved);
  CHECK(model_of(cluster, "2") == model_of(cluster, "1"));

  // By another hand it is a failure, as the end by any signal.
  const Output mine = cluster.run({"train", "-d"}, project);
  auto third = cluster.start({"logs", "-f", "3"});
  third->wait_for(" epoch=2 ");
  send(replicas(cluster, "3"), roles.find("distributed") == roles.npos ? "3.train" : "3.master", SIGTERM);
  third->wait_for("RESTARTING");
  CHECK(cluster.run({"kill", "3"}).code == 0);
}
