// What is preemptible gives way to what waits and has a higher priority, and goes on from what it kept.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/support/cluster.h"
#include "tests/support/digits.h"
#include "tests/support/facts.h"

using namespace dtrain::tests;

namespace {

// Its first attempt waits, and takes its time to keep what it did when it gets TERM: until it is let go.
std::string keeps_what_it_did(const fs::path& gate) {
  return "project: p\ntrain:\n  resources: {cpus: 2, mem: 32}\n  preemptible: true\n  stop-grace: 1h\n  run: |\n"
         "    if [ -f $OUTPUT_DIR/kept ]; then echo went on after $(cat $OUTPUT_DIR/kept); exit; fi\n"
         "    trap 'echo keeps; read go < " + gate.string() + "; echo three steps > $OUTPUT_DIR/kept; exit 0' TERM\n"
         "    echo first\n"
         "    while :; do sleep 1000 & wait; done\n";
}

void kill_daemon(Cluster& cluster) {
  kill_all(cluster.processes("daemon run"));
}

}  // namespace

TEST_CASE("what is preemptible gives way in order, nobody else gets its place, and it goes on; a daemon may die meanwhile") {
  Cluster cluster;
  cluster.own_ports("cpus: 2, mem: 4GiB");
  const fs::path gate = cluster.folder() / "gate", end = cluster.folder() / "end";
  REQUIRE(::mkfifo(gate.c_str(), 0600) == 0);
  REQUIRE(::mkfifo(end.c_str(), 0600) == 0);
  const fs::path project = cluster.project(keeps_what_it_did(gate));
  const fs::path urgent = cluster.project(
      "urgent", {{"dtrain.yml", "project: urgent\ntrain:\n  resources: {cpus: 2, mem: 32}\n  run: echo urgent; read go < " + end.string() + "\n"}});
  REQUIRE(cluster.run({"train", "-d"}, project).code == 0);
  cluster.start({"logs", "-f", "1"})->wait_for("first");

  const Output plan = cluster.run({"train", "--dry-run", "--priority", "80"}, urgent);
  CHECK_MESSAGE(says(plan, "1 gives way to it"), plan.all());
  CHECK_FALSE(says(cluster.run({"train", "--dry-run"}, urgent), "gives way"));   // as high a priority is none that is higher
  REQUIRE(cluster.run({"train", "-d", "--priority", "80"}, urgent).code == 0);
  cluster.start({"logs", "-f", "1"})->wait_for("keeps");
  CHECK_MESSAGE(says(cluster.run({"why", "1"}), "gives way to 2 (priority 80)"), cluster.run({"why", "1"}).all());
  CHECK_MESSAGE(says(cluster.run({"why", "2"}), "1 gives way to it"), cluster.run({"why", "2"}).all());
  CHECK(status_of(cluster, "1")["state"] == "RESTARTING");

  kill_daemon(cluster);
  REQUIRE(cluster.run({"train", "-d", "--priority", "70", "--cpus", "1", "--", "echo", "later"}, urgent).code == 0);
  std::ofstream(gate) << "go\n";
  cluster.start({"logs", "-f", "2"})->wait_for("urgent");
  CHECK(status_of(cluster, "3")["state"] == "PENDING");
  CHECK_MESSAGE(says(cluster.run({"why", "1"}), "gave way to 2 (priority 80)"), cluster.run({"why", "1"}).all());
  std::ofstream(end) << "go\n";
  CHECK(cluster.run({"wait", "1", "2", "3"}).code == 0);
  CHECK(cluster.log_of("1.train") == "first\nkeeps\nwent on after three steps\n");
  CHECK(status_of(cluster, "1")["attempt"] == 2);
  CHECK(cluster.log_of("3") == "later\n");
}

TEST_CASE("the engine comes to the same bits, however often it gives way") {
  Cluster cluster;
  cluster.own_ports("cpus: 2, mem: 4GiB");
  const std::string yaml = R"(project: digits
train:
  framework: engine
  priority: 10
  resources: {cpus: 1, mem: 128MiB}
  engine:
    model: {mlp: {hidden: [32]}}
    data: {train: data/train, test: data/test}
    checkpoint: {every: 5 epochs}
    epochs: 400
    strategy: multi-worker-mirrored
    distributed: {worker: 2}
)";
  const fs::path project = digits_project(cluster, yaml);
  auto train = cluster.start({"train", "--preemptible"}, project);
  for (const char* said : {" epoch=10 ", "resumed_at_step="}) {
    train->wait_for(said);
    const Output urgent = cluster.run({"train", "--cpus", "1", "--", "echo", "urgent"}, project);
    CHECK_MESSAGE(urgent.code == 0, urgent.all());
  }
  const Output trained = train->wait();
  CHECK_MESSAGE(trained.code == 0, trained.all());
  CHECK_MESSAGE(trained.out.find("gives way to 2 (priority 50)") != std::string::npos, trained.out);
  CHECK_MESSAGE(trained.out.find("gives way to 3 (priority 50)") != std::string::npos, trained.out);
  const Json after = status_of(cluster, "1");
  CHECK(after["attempt"] == 3);
  const Output fixed = cluster.run({"train"}, project);
  REQUIRE_MESSAGE(fixed.code == 0, fixed.all());
  CHECK(model_of(cluster, "4") == model_of(cluster, "1"));
}

TEST_CASE("members of a set give way one by one, the newest first, and only as many as it takes") {
  Cluster cluster;
  cluster.own_ports("cpus: 3, mem: 4GiB");
  const fs::path gate = cluster.folder() / "gate";
  REQUIRE(::mkfifo(gate.c_str(), 0600) == 0);
  const fs::path project = cluster.project(
      "project: p\ntrain:\n  resources: {cpus: 1, mem: 32}\n  preemptible: true\n  parameters: {n: [1, 2, 3]}\n"
      "  run: echo here; [ $DTRAIN_ATTEMPT = 2 ] || [ $N = 1 ] || exec sleep 1000; [ $N != 1 ] || read go < " + gate.string() + "\n");
  REQUIRE(cluster.run({"train", "-d"}, project).code == 0);
  for (const char* member : {"1.1", "1.2", "1.3"}) cluster.start({"logs", "-f", member})->wait_for("here");
  const Output urgent = cluster.run({"train", "--priority", "51", "--cpus", "2", "--", "echo", "urgent"}, project);
  CHECK_MESSAGE(urgent.code == 0, urgent.all());
  CHECK_MESSAGE(says(urgent, "1.2 and 1.3 give way to it"), urgent.all());
  std::ofstream(gate) << "go\n";
  CHECK(cluster.run({"wait", "1"}).code == 0);
  CHECK(status_of(cluster, "1.1")["attempt"] == 1);
  CHECK(status_of(cluster, "1.2")["attempt"] == 2);
  CHECK(status_of(cluster, "1.3")["attempt"] == 2);
}
