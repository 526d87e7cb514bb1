// The examples that run a real TensorFlow, through their build steps: what TensorFlow itself saw of
// its cluster, that the loss fell, and what is left. They fetch packages; without an index they are
// skipped.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"
#include "tests/support/package_index.h"
#include "tests/support/skipped.h"

using namespace dtrain::tests;

namespace {

constexpr std::chrono::minutes kBuildAndTrain{15};

fs::path example(Cluster& cluster, const std::string& name) {
  const fs::path project = cluster.folder() / name;
  const auto anew = fs::copy_options::recursive | fs::copy_options::overwrite_existing;
  fs::copy(fs::path(SOURCE_DIR) / "examples" / name, project, anew);
  return project;
}

// Of a line "... name=1.5 ..." of the text, its first or its last.
double number_after(const std::string& text, const std::string& name, bool last) {
  const size_t at = last ? text.rfind(name) : text.find(name);
  REQUIRE_MESSAGE(at != std::string::npos, text);
  return std::strtod(text.c_str() + at + name.size(), nullptr);
}

// Each replica's own words of its task and cluster.
void check_saw(Cluster& cluster, const std::string& replica, const std::string& words) {
  const Output logs = cluster.run({"logs", replica});
  CHECK_MESSAGE(says(logs, " task=" + words), logs.all());
}

void check_all_finished(Cluster& cluster, const std::string& id) {
  const auto shown = facts(cluster.run({"status", id, "--json"}));
  for (const auto& replica : shown["replicas"]) {
    CHECK_MESSAGE(replica["state"] == "FINISHED", shown.dump());
  }
  CHECK(cluster.processes("train.py").empty());
}

void train(Cluster& cluster, const fs::path& project, const std::vector<std::string>& more = {}) {
  std::vector<std::string> words = {"train"};
  words.insert(words.end(), more.begin(), more.end());
  const Output output = cluster.run(words, project, kBuildAndTrain);
  REQUIRE_MESSAGE(output.code == 0, output.all());
}

// ParameterServerStrategy: chief, two workers, two ps, an evaluator.
void check_parameter_servers(Cluster& cluster) {
  train(cluster, example(cluster, "tensorflow-ps"));
  check_saw(cluster, "1.chief", "chief:0 chief=1 ps=2 worker=2");
  check_saw(cluster, "1.worker.1", "worker:0 chief=1 ps=2 worker=2");
  check_saw(cluster, "1.worker.2", "worker:1 chief=1 ps=2 worker=2");
  check_saw(cluster, "1.ps.1", "ps:0 chief=1 ps=2 worker=2");
  check_saw(cluster, "1.ps.2", "ps:1 chief=1 ps=2 worker=2");
  check_saw(cluster, "1.evaluator.1", "evaluator:0 chief=1 evaluator=1 ps=2 worker=2");
  const std::string chief = cluster.run({"logs", "1.chief"}).out;
  CHECK(number_after(chief, " loss=", true) < 0.7 * number_after(chief, " loss=", false));
  const std::string evaluator = cluster.run({"logs", "1.evaluator.1"}).out;
  CHECK(number_after(evaluator, " test-accuracy=", true) > 0.8);
  check_all_finished(cluster, "1");
  CHECK(fs::exists(cluster.home() / "outputs/1/model/saved_model.pb"));
}

// tf.compat.v1 with the same TensorFlow: nothing is built for it.
void check_version_one(Cluster& cluster, const std::string& id, const std::string& mode) {
  train(cluster, example(cluster, "tensorflow-v1"), {"-p", "mode=" + mode});
  CHECK(!says(cluster.run({"logs", id}), "Building your environment"));
  check_saw(cluster, id + ".master", "worker:0 ps=1 worker=3");
  check_saw(cluster, id + ".worker.1", "worker:1 ps=1 worker=3");
  check_saw(cluster, id + ".worker.2", "worker:2 ps=1 worker=3");
  check_saw(cluster, id + ".ps.1", "ps:0 ps=1 worker=3");
  const std::string master = cluster.run({"logs", id + ".master"}).out;
  CHECK(number_after(master, " loss=", true) < 0.01 * number_after(master, " loss=", false));
  if (mode == "in-graph") {
    CHECK_MESSAGE(master.find("tower=2 on=/job:worker/task:2") != std::string::npos, master);
  } else {
    CHECK_MESSAGE(master.find("weights-on=/job:ps/task:0") != std::string::npos, master);
  }
  check_all_finished(cluster, id);
  CHECK(fs::exists(cluster.home() / "outputs" / id / "checkpoints/checkpoint"));
}

}  // namespace

TEST_CASE("TensorFlow 2.15 with parameter servers, and as TensorFlow 1 had it") {
  Cluster cluster;
  cluster.own_ports();
  if (!index_answers(cluster)) return say_skipped("no package index answers");
  check_parameter_servers(cluster);
  check_version_one(cluster, "2", "between-graph");
  check_version_one(cluster, "3", "in-graph");
}

TEST_CASE(
    "the newest TensorFlow's collectives over three workers, of which worker 0 is the master") {
  Cluster cluster;
  cluster.own_ports();
  if (!index_answers(cluster)) return say_skipped("no package index answers");
  train(cluster, example(cluster, "tensorflow-multiworker"));
  std::string weights;
  for (const std::string replica : {"1.master", "1.worker.1", "1.worker.2"}) {
    CAPTURE(replica);
    const std::string index = replica == "1.master" ? "0" : replica.substr(replica.size() - 1);
    check_saw(cluster, replica, "worker:" + index + " worker=3 replicas=3");
    const std::string logs = cluster.run({"logs", replica}).out;
    CHECK(number_after(logs, " loss=", true) < 0.5 * number_after(logs, " loss=", false));
    CHECK(number_after(logs, "test-accuracy=", true) > 0.9);
    // The same on all: each step was everybody's.
    const std::string sum = logs.substr(logs.find(" weights=")).substr(0, 18);
    if (weights.empty()) weights = sum;
    CHECK(sum == weights);
  }
  check_all_finished(cluster, "1");
  CHECK(fs::exists(cluster.home() / "outputs/1/model/saved_model.pb"));
}
