// dtrain suspend and resume: what is given back, and what goes on.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"

using namespace dtrain::tests;

namespace {

std::string state_now(Cluster& cluster, const std::string& id) { return facts(cluster.run({"status", id, "--json"}))["state"]; }

// Its first attempt waits, and keeps what TERM leaves it time for; the next one goes on from there.
constexpr const char* kKeepsWhatItDid =
    "project: p\ntrain:\n  resources: {cpus: 0.1, mem: 32}\n"
    "  run: |\n"
    "    if [ -f $OUTPUT_DIR/kept ]; then echo went on after $(cat $OUTPUT_DIR/kept); exit; fi\n"
    "    trap 'echo three steps > $OUTPUT_DIR/kept; exit 0' TERM\n"
    "    echo first\n"
    "    while :; do sleep 1000 & wait; done\n";

void wait_for_state(Cluster& cluster, const std::string& id, const std::string& state) {
  // Each line of its events is one; it goes through that state, or has.
  auto watching = cluster.start({"logs", "-f", id});
  watching->wait_for("--> " + state);
}

}  // namespace

TEST_CASE("what is suspended gives back what it has, and goes on from what it kept, also after a new daemon") {
  Cluster cluster;
  const fs::path project = cluster.project(kKeepsWhatItDid);
  REQUIRE(cluster.run({"train", "-d"}, project).code == 0);
  cluster.start({"logs", "-f", "1"}, project)->wait_for("first");
  const Output suspended = cluster.run({"suspend"}, project);
  REQUIRE_MESSAGE(suspended.code == 0, suspended.all());
  CHECK_MESSAGE(says(suspended, "1 is being suspended; dtrain resume 1 lets it go on"), suspended.all());
  wait_for_state(cluster, "1", "SUSPENDED");
  CHECK(state_now(cluster, "1") == "SUSPENDED");
  CHECK(facts(cluster.run({"hosts", "--json"}))["hosts"][0]["replicas_count"] == 0);
  CHECK(says(cluster.run({"why", "1"}), "suspended until `resume 1`"));
  CHECK(says(cluster.run({"suspend", "1"}), "1 is already suspended"));
  CHECK(says(cluster.run({"suspend", "1.train"}), "of the whole experiment: dtrain suspend 1"));

  kill_all(cluster.processes("daemon run"));
  CHECK(state_now(cluster, "1") == "SUSPENDED");
  const Output resumed = cluster.run({"resume"}, project);
  CHECK_MESSAGE(resumed.code == 0, resumed.all());
  CHECK(cluster.run({"wait", "1"}).code == 0);
  CHECK(cluster.log_of("1.train") == "first\nwent on after three steps\n");
  const Output late = cluster.run({"resume", "1"});
  CHECK(late.code == 2);
  CHECK(says(late, "1 is already FINISHED; dtrain rerun 1 --resume goes on from what it wrote"));
  CHECK(cluster.run({"resume"}, project).code == 2);
  const Output over = cluster.run({"suspend", "1"});
  CHECK(over.code == 2);
  CHECK(says(over, "1 is already FINISHED\n"));
}

TEST_CASE("what begins suspended waits until somebody lets it go on, of a manifest of Kubeflow too") {
  Cluster cluster;
  const fs::path project = cluster.project(
      "project", {{"dtrain.yml", "project: p\ntrain: {resources: {cpus: 0.1, mem: 32}, run: echo ran}\n"},
                  {"job.yaml", "apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: x}\nspec:\n  runPolicy: {suspend: true}\n"
                               "  tfReplicaSpecs: {Worker: {template: {spec: {containers: [{name: tensorflow, command: [echo, ran],\n"
                               "    resources: {requests: {cpu: 100m, memory: 32Mi}}}]}}}}\n"}});
  CHECK(cluster.run({"train", "-d", "--suspended"}, project).code == 0);
  const Output manifest = cluster.run({"train", "-d", "-f", "job.yaml"}, project);
  REQUIRE_MESSAGE(manifest.code == 0, manifest.all());
  CHECK(state_now(cluster, "1") == "SUSPENDED");
  CHECK(state_now(cluster, "2") == "SUSPENDED");
  CHECK(cluster.run({"train", "--", "echo", "between"}, project).code == 0);
  CHECK(cluster.run({"resume", "1", "2"}, project).code == 0);
  CHECK(cluster.run({"wait", "1", "2"}).code == 0);
  CHECK(cluster.log_of("1.train") == "ran\n");
  const Output again = cluster.run({"rerun", "1"}, project);   // how it began is no part of what it was
  CHECK_MESSAGE(again.code == 0, again.all());
  CHECK(says(again, "ran"));
}

TEST_CASE("what is suspended is killed like anything else, and nothing is done where one of several IDs is wrong") {
  Cluster cluster;
  const fs::path project = cluster.project("project: p\ntrain: {resources: {cpus: 0.1, mem: 32}, run: echo ran}\n");
  CHECK(cluster.run({"train", "-d", "--suspended"}, project).code == 0);
  const Output wrong = cluster.run({"resume", "1", "7"}, project);
  CHECK(wrong.code == 2);
  CHECK_MESSAGE(says(wrong, "nothing is done"), wrong.all());
  CHECK(state_now(cluster, "1") == "SUSPENDED");
  CHECK(cluster.run({"kill", "1"}).code == 0);
  CHECK(cluster.run({"wait", "1"}).code == 130);
}
