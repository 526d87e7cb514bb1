// Gangs that begin with fewer workers than they ask for, and are begun again with more.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/support/cluster.h"
#include "tests/support/digits.h"
#include "tests/support/facts.h"

using namespace dtrain::tests;

namespace {

// A daemon whose host has room for three replicas of one cpu, two of which something else takes until it is let go.
struct SmallHost {
  Cluster cluster;
  fs::path gate = cluster.folder() / "gate";

  SmallHost() {
    cluster.own_ports("cpus: 3, mem: 4GiB");
    REQUIRE(::mkfifo(gate.c_str(), 0600) == 0);
  }
  void take_two() {
    const fs::path project = cluster.project(
        "other", {{"dtrain.yml", "project: other\ntrain:\n  resources: {cpus: 2, mem: 32}\n  run: echo here; read go < " + gate.string() + "\n"}});
    REQUIRE(cluster.run({"train", "-d"}, project).code == 0);
    cluster.start({"logs", "-f", "1"})->wait_for("here");
  }
  void let_go() const { std::ofstream(gate) << "go\n"; }
};

// Says how many there are; the first attempt waits.
constexpr const char* kCounting = R"(project: counting
train:
  framework: pytorch
  resources: {cpus: 1, mem: 32}
  pytorch: {distributed: {worker: 3, elastic: {min: 1, grow-after: 0}}}
  run: echo $RANK of $WORLD_SIZE in attempt $DTRAIN_ATTEMPT; [ $DTRAIN_ATTEMPT = 2 ] || exec sleep 1000
)";

}  // namespace

TEST_CASE("an elastic training begins on what is free, takes more when there is more, and comes to the bits of a fixed one") {
  SmallHost host;
  Cluster& cluster = host.cluster;
  std::string strategy, servers, epochs;   // enough to last until it is begun again
  SUBCASE("by all-reduce") {
    strategy = "multi-worker-mirrored";
    epochs = "1000";
  }
  SUBCASE("by a parameter server") {
    strategy = "{parameter-server: {mode: sync}}";
    epochs = "300";
    servers = ", ps: {count: 1, resources: {cpus: 0.01, mem: 128MiB}}";
  }
  const std::string yaml = R"(project: digits
train:
  framework: engine
  resources: {cpus: 0.9, mem: 128MiB}
  engine:
    model: {mlp: {hidden: [32]}}
    data: {train: data/train, test: data/test}
    checkpoint: {every: 25 epochs}
    epochs: )" + epochs + "\n    strategy: " + strategy + "\n    distributed: {worker: 3, elastic: {min: 1, grow-after: 0s}" + servers + "}\n";
  host.take_two();
  const fs::path project = digits_project(cluster, yaml);
  auto train = cluster.start({"train"}, project);
  train->wait_for(" epoch=30 ");
  const Json before = status_of(cluster, "2");
  CHECK(before["replicas_count"] == (servers.empty() ? 1 : 2));
  CHECK(before["reason"] == "has 1 of 3 workers, and is begun again with more when there is room");
  host.let_go();
  const Output grown = train->wait();
  CHECK_MESSAGE(grown.code == 0, grown.all());
  CHECK_MESSAGE(grown.out.find("begins again with all of its workers") != std::string::npos, grown.out);
  CHECK_MESSAGE(grown.out.find("resumed_at_step=") != std::string::npos, grown.out);
  const Json after = status_of(cluster, "2");
  CHECK(after["replicas"].size() == (servers.empty() ? 3 : 4));
  CHECK(after["attempt"] == 2);
  for (const Json& replica : after["replicas"]) CHECK_MESSAGE(replica["state"] == "FINISHED", replica.dump());

  const Output fixed = cluster.run({"train", "--set", "train.engine.distributed.elastic=null"}, project);
  REQUIRE_MESSAGE(fixed.code == 0, fixed.all());
  CHECK(model_of(cluster, "3") == model_of(cluster, "2"));
}

TEST_CASE("each process of an elastic gang is told of those that there are; what another attempt printed is kept") {
  SmallHost host;
  Cluster& cluster = host.cluster;
  const fs::path project = cluster.project(kCounting);
  host.take_two();
  auto train = cluster.start({"train"}, project);
  train->wait_for("0 of 1 in attempt 1");
  const Json small = status_of(cluster, "2");
  CHECK(small["replicas_count"] == 1);
  CHECK(with_id(small["replicas"], "2.worker.2")["state"] == "CREATED");
  CHECK(with_id(small["replicas"], "2.worker.2")["reason"] == "there is no room for it");
  CHECK(says(cluster.run({"exec", "2.worker.2", "--", "true"}), "2.worker.2 does not run: there is no room for it"));
  CHECK(cluster.run({"logs", "2.worker.2", "--attempt", "1"}).code == 0);
  CHECK(says(cluster.run({"logs", "2.worker.2", "--attempt", "2"}), "2.worker.2 had no attempt 2; its newest is 1"));
  // A new daemon knows how many there are.
  kill_all(cluster.processes("daemon run"));
  CHECK(status_of(cluster, "2")["replicas_count"] == 1);
  host.let_go();
  const Output grown = train->wait();
  CHECK_MESSAGE(grown.code == 0, grown.all());
  CHECK(cluster.log_of("2.master") == "0 of 1 in attempt 1\n0 of 3 in attempt 2\n");
  CHECK(cluster.log_of("2.worker.2") == "2 of 3 in attempt 2\n");
}

TEST_CASE("an elastic gang takes nothing that others wait for, and its plan says how many there would be") {
  SmallHost host;
  Cluster& cluster = host.cluster;
  const fs::path project = cluster.project(kCounting);
  const Output plan = cluster.run({"train", "--dry-run", "--set", "train.resources.cpus=2"}, project);
  CHECK_MESSAGE(plan.out.find("1 process\n") != std::string::npos, plan.out);
  CHECK_MESSAGE(plan.out.find("1 of 3 workers") != std::string::npos, plan.out);
  const Output never = cluster.run({"train", "-d", "--set", "train.resources.cpus=4"}, project);
  CHECK(never.code == 2);
  host.take_two();
  auto train = cluster.start({"train"}, project);
  train->wait_for("0 of 1 in attempt 1");
  REQUIRE(cluster.run({"train", "-d", "--cpus", "2", "--", "echo", "it was my turn"}, project).code == 0);
  host.let_go();
  REQUIRE(cluster.run({"wait", "3"}).code == 0);
  CHECK(cluster.log_of("3") == "it was my turn\n");
  CHECK(train->wait().code == 0);
}
