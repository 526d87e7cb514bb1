// `dtrain hosts test`: hosts in network namespaces, as they should be and not.
#include <doctest/doctest.h>
#include <signal.h>

#include <memory>
#include <vector>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"
#include "tests/support/network.h"
#include "tests/support/skipped.h"

using namespace dtrain::tests;

namespace {

// Runners called n0, n1 and so on, each in a namespace of its own, and none beside the daemon.
struct TestedHosts {
  explicit TestedHosts(int count) : network(count) {
    if (!network.unavailable().empty()) return;
    daemon = cluster.start({"daemon", "run", "--no-local-runner"});
    daemon->wait_for("listening on");
    const std::string socket = facts(cluster.run({"daemon", "status", "--json"}))["socket"];
    for (int host = 0; host < count; ++host) {
      const std::string name = "n" + std::to_string(host);
      Command command = cluster.command({"runner", "run", "--join", "unix:" + socket, "--home", (cluster.folder() / name).string(), "--address",
                                         Network::address(host), "--name", name, "--cpus", "1", "--mem", "1GiB"});
      command.netns = network.netns(host);
      runners.push_back(std::make_unique<Process>(command));
    }
    for (auto& runner : runners) runner->wait_for("joined the daemon");
  }

  Network network;
  Cluster cluster;
  std::unique_ptr<Process> daemon;
  std::vector<std::unique_ptr<Process>> runners;
};

}  // namespace

TEST_CASE("two hosts that work are measured, and all is well") {
  TestedHosts hosts(2);
  if (!hosts.network.unavailable().empty()) return say_skipped(hosts.network.unavailable());
  const Output tested = hosts.cluster.run({"hosts", "test"});
  CHECK_MESSAGE(tested.code == 0, tested.all());
  CHECK_MESSAGE(says(tested, "All is well with 2 hosts"), tested.all());
  CHECK_MESSAGE(says(tested, "bit/s (n1)"), tested.all());
  CHECK_MESSAGE(says(tested, "ms (n0)"), tested.all());
  const Json shown = status_of(hosts.cluster, "1");
  CHECK(shown["project"] == "hosts-test");
  CHECK(shown["state"] == "FINISHED");
  CHECK(shown["replicas"][0]["host"] != shown["replicas"][1]["host"]);
}

TEST_CASE("one host alone is looked at, too, and found by its name") {
  TestedHosts hosts(2);
  if (!hosts.network.unavailable().empty()) return say_skipped(hosts.network.unavailable());
  const Json tested = facts(hosts.cluster.run({"hosts", "test", "n1", "--json"}));
  CHECK(tested["ok"] == true);
  CHECK(tested["links"].empty());
  REQUIRE(tested["hosts"].size() == 1);
  CHECK(tested["hosts"][0]["host"] == "n1");
  CHECK(tested["hosts"][0]["output_arrived"] == true);
  CHECK(tested["hosts"][0]["work"]["bytes_per_s"] > 0);
  const Output unknown = hosts.cluster.run({"hosts", "test", "n7"});
  CHECK(unknown.code == 2);
  CHECK_MESSAGE(says(unknown, "known hosts: n0, n1"), unknown.all());
}

TEST_CASE("who can't reach whom is named, and the others are measured all the same") {
  TestedHosts hosts(3);
  if (!hosts.network.unavailable().empty()) return say_skipped(hosts.network.unavailable());
  hosts.network.block(1, 0);
  const Output tested = hosts.cluster.run({"hosts", "test", "--json"});
  CHECK_MESSAGE(tested.code == 1, tested.all());
  const Json found = Json::parse(tested.out);
  CHECK(found["ok"] == false);
  size_t measured = 0;
  for (const Json& link : found["links"]) {
    const bool is_closed = (link["from"] == "n0" && link["to"] == "n1") || (link["from"] == "n1" && link["to"] == "n0");
    CHECK_MESSAGE(link["reached"] == !is_closed, link.dump());
    measured += !link["round_trip_ms"].is_null();
  }
  CHECK(found["links"].size() == 6);
  CHECK(measured == 2);
  REQUIRE_MESSAGE(found["troubles"].size() == 2, tested.out);
  std::string messages;
  for (const Json& trouble : found["troubles"]) messages += trouble["message"].get<std::string>() + "\n";
  CHECK_MESSAGE(messages.find("n0 can't reach n1 at 10.66.0.2:") != std::string::npos, messages);
  CHECK_MESSAGE(messages.find("connection timed out") != std::string::npos, messages);
  CHECK_MESSAGE(messages.find("n1 can't reach n0 at 10.66.0.1:") != std::string::npos, messages);
}

TEST_CASE("hosts that are drained or away are told, and the others tested") {
  TestedHosts hosts(3);
  if (!hosts.network.unavailable().empty()) return say_skipped(hosts.network.unavailable());
  REQUIRE(hosts.cluster.run({"hosts", "drain", "n2"}).code == 0);
  const Output drained = hosts.cluster.run({"hosts", "test"});
  CHECK_MESSAGE(drained.code == 0, drained.all());
  CHECK_MESSAGE(says(drained, "n2: not tested, it is drained; dtrain hosts undrain n2"), drained.all());
  hosts.runners[1]->signal(SIGKILL);
  hosts.runners[1]->wait();
  Output known;   // the daemon hears of it by itself, soon
  for (int i = 0; i < 200 && !says(known, "n1: away"); ++i) known = hosts.cluster.run({"hosts"});
  REQUIRE_MESSAGE(says(known, "n1: away"), known.all());
  const Output away = hosts.cluster.run({"hosts", "test"});
  CHECK_MESSAGE(says(away, "n1 is away\n"), away.all());
  CHECK(away.code == 1);
  const Output asked = hosts.cluster.run({"hosts", "test", "n2"});
  CHECK_MESSAGE(asked.code == 1, asked.all());
}

TEST_CASE("of a gang with per-host each host takes one, and where there are too few of them it is refused") {
  TestedHosts hosts(2);
  if (!hosts.network.unavailable().empty()) return say_skipped(hosts.network.unavailable());
  const fs::path project = hosts.cluster.project(R"(project: p
train:
  framework: tensorflow
  resources: {cpus: 0.1, mem: 16}
  tensorflow: {distributed: {worker: {count: 2, per-host: 1}}}
  run: echo at $DTRAIN_ADDRESS
)");
  const Output train = hosts.cluster.run({"train"}, project);
  REQUIRE_MESSAGE(train.code == 0, train.all());
  for (int host = 0; host < 2; ++host) CHECK_MESSAGE(says(train, "at " + Network::address(host)), train.out);
  const Output refused = hosts.cluster.run({"train", "--set", "train.tensorflow.distributed.worker.count=3"}, project);
  CHECK(refused.code == 2);
  CHECK_MESSAGE(says(refused, "needs 3 hosts for its workers, one each; there are 2"), refused.all());
}

TEST_CASE("Ctrl-C ends the test, and leaves nothing running") {
  TestedHosts hosts(2);
  if (!hosts.network.unavailable().empty()) return say_skipped(hosts.network.unavailable());
  hosts.network.block(1, 0);   // so that it takes until a deadline
  auto test = hosts.cluster.start({"hosts", "test"});
  Output log;
  for (int i = 0; i < 200 && !says(log, "hosts-probe"); ++i) log = hosts.cluster.run({"logs", "1"});
  REQUIRE_MESSAGE(says(log, "hosts-probe"), log.all());
  test->signal(SIGINT);
  const Output ended = test->wait();
  CHECK_MESSAGE(ended.code == 130, ended.all());
  CHECK_MESSAGE(says(ended, "Experiment 1, which was the test, is ended"), ended.all());
  CHECK(status_of(hosts.cluster, "1")["state"] == "KILLED");
}
