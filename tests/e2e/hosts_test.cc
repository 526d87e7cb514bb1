// Several hosts: runners in network namespaces of this machine, joined over the daemon's Unix
// socket. Their replicas reach each other only through the addresses in TF_CONFIG.
#include <doctest/doctest.h>
#include <signal.h>

#include <memory>
#include <set>
#include <sstream>

#include "tests/support/cluster.h"
#include "tests/support/digits.h"
#include "tests/support/facts.h"
#include "tests/support/network.h"
#include "tests/support/skipped.h"

using namespace dtrain::tests;

namespace {

// A runner per host. Each claims more memory than any real machine has, so that a role that asks
// for it lands there, one replica a host, and never beside the daemon.
std::vector<std::unique_ptr<Process>> join_runners(const Cluster& cluster, const Network& network,
                                                   const std::string& socket, int hosts) {
  std::vector<std::unique_ptr<Process>> runners;
  for (int host = 0; host < hosts; ++host) {
    std::string name = "host" + std::to_string(host);
    Command command = cluster.command(
        {"runner", "run", "--join", "unix:" + socket, "--home", (cluster.folder() / name).string(),
         "--address", Network::address(host), "--name", name, "--cpus", "4", "--mem", "60TiB"});
    command.netns = network.netns(host);
    runners.push_back(std::make_unique<Process>(command));
  }
  for (auto& runner : runners) runner->wait_for("joined the daemon");
  return runners;
}

std::string spread_yaml(const std::string& run) {
  return R"(project: spread
train:
  framework: tensorflow
  resources: {cpus: 0.5, mem: 40TiB}
  tensorflow:
    distributed: {worker: 2, ps: 1}
  run: )" +
         run + "\n";
}

// Bytes that came from other hosts to that of this process, and went there.
long traffic(pid_t pid) {
  std::istringstream devices(read_file("/proc/" + std::to_string(pid) + "/net/dev"));
  long bytes = 0;
  for (std::string line; std::getline(devices, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || line.substr(0, colon).ends_with("lo")) continue;
    std::istringstream figures(line.substr(colon + 1));
    long received = 0, of_packets = 0;
    figures >> received;
    for (int left_out = 0; left_out < 7; ++left_out) figures >> of_packets;
    long sent = 0;
    figures >> sent;
    bytes += received + sent;
  }
  return bytes;
}

}  // namespace

TEST_CASE("master, worker and ps on three hosts train together through TF_CONFIG") {
  Network network(3);
  if (!network.unavailable().empty()) return say_skipped(network.unavailable());
  Cluster cluster;
  fs::path project = cluster.folder() / "digits";
  fs::copy(std::string(SOURCE_DIR) + "/examples/parameter-server", project,
           fs::copy_options::recursive);
  write_file(project / "dtrain.yml", spread_yaml("python train.py --epochs 1"));

  CHECK(cluster.run({"daemon", "start"}).code == 0);
  std::string socket = facts(cluster.run({"daemon", "status", "--json"}))["socket"];
  auto runners = join_runners(cluster, network, socket, 3);

  Output train = cluster.run({"train"}, project, std::chrono::seconds(180));
  CHECK_MESSAGE(train.code == 0, train.all());
  Json shown = facts(cluster.run({"status", "1", "--json"}));
  std::set<std::string> hosts;
  for (const Json& replica : shown["replicas"]) {
    hosts.insert(replica["host_id"]);
    CHECK(replica["address"].get<std::string>().rfind("10.66.0.", 0) == 0);
  }
  CHECK(hosts.size() == 3);
  CHECK(shown["replicas"].size() == 3);

  // Worker and server really met, and the lines of all three lie in one stream.
  CHECK(train.out.find("role=ps index=0 listening=10.66.0.") != std::string::npos);
  CHECK(train.out.find("role=worker index=1 workers=2 servers=1") != std::string::npos);
  size_t worker = train.out.find("\n1.worker.1");
  size_t last_master = train.out.rfind("\n1.master");
  size_t first_master = train.out.find("\n1.master");
  CHECK(first_master < last_master);
  CHECK(worker < last_master);
  CHECK(fs::exists(project / "runs/1/model.json"));
}

TEST_CASE("the engine's workers on two hosts come to the bits of two on one") {
  Network network(2);
  if (!network.unavailable().empty()) return say_skipped(network.unavailable());
  Cluster cluster;
  cluster.own_ports();
  const fs::path project = cluster.project(R"(project: digits
train:
  framework: engine
  resources: {cpus: 0.5, mem: 40TiB}
  engine:
    model: {mlp: {hidden: [32]}}
    data: {train: data/train, test: data/test}
    strategy: multi-worker-mirrored
    epochs: 3
    distributed: {worker: 2}
)");
  draw_digits(project, "2000");
  const Output alone = cluster.run({"train", "--set", "train.resources.mem=128"}, project);
  REQUIRE_MESSAGE(alone.code == 0, alone.all());

  const std::string socket = facts(cluster.run({"daemon", "status", "--json"}))["socket"];
  const auto runners = join_runners(cluster, network, socket, 2);
  const long before = traffic(runners[0]->pid());
  const Output spread = cluster.run({"train"}, project);
  REQUIRE_MESSAGE(spread.code == 0, spread.all());
  std::set<std::string> addresses;
  const Json shown = facts(cluster.run({"status", "2", "--json"}));
  for (const Json& replica : shown["replicas"]) addresses.insert(replica["address"]);
  CHECK(addresses == std::set<std::string>{Network::address(0), Network::address(1)});
  // At the least 25,450 gradients of 96 steps, in fp32.
  const long went = traffic(runners[0]->pid()) - before;
  CHECK_MESSAGE(went > 96 * 25'450 * 4, went);
  CHECK(model_of(cluster, "2") == model_of(cluster, "1"));
}

TEST_CASE("a gang that fits no set of hosts at once waits for its place whole") {
  Network network(1);
  if (!network.unavailable().empty()) return say_skipped(network.unavailable());
  Cluster cluster;
  CHECK(cluster.run({"daemon", "start"}).code == 0);
  std::string socket = facts(cluster.run({"daemon", "status", "--json"}))["socket"];
  auto runners = join_runners(cluster, network, socket, 1);

  fs::path large = cluster.project(
      "project: large\ntrain:\n  resources: {mem: 40TiB}\n  run: echo at work; exec sleep 1000\n");
  auto first = cluster.start({"train"}, large);
  first->wait_for("at work");
  fs::path second = cluster.project(
      "second", {{"dtrain.yml",
                  "project: second\ntrain:\n  resources: {mem: 30TiB}\n  run: echo mine now\n"}});
  auto waiting = cluster.start({"train"}, second);
  waiting->wait_for("PENDING");
  Output why = cluster.run({"why", "2"});
  CHECK_MESSAGE(why.out.find("most is free on host0") != std::string::npos, why.all());

  CHECK(cluster.run({"kill", "1"}).code == 0);
  waiting->wait_for("mine now");
  CHECK(waiting->wait().code == 0);
}

TEST_CASE("a gang with more replicas than the host has ports is refused, and says so") {
  Cluster cluster;
  Process daemon(cluster.command({"daemon", "run", "--no-local-runner"}));
  daemon.wait_for("listening on");
  std::string socket = facts(cluster.run({"daemon", "status", "--json"}))["socket"];
  Process runner(cluster.command({"runner", "run", "--join", "unix:" + socket, "--home",
                                  (cluster.folder() / "host").string(), "--ports", "20000-20001"}));
  runner.wait_for("joined the daemon");
  fs::path project = cluster.project(spread_yaml("echo"));
  Output train = cluster.run({"train", "--set", "train.resources.mem=32"}, project);
  CHECK(train.code == 2);
  CHECK_MESSAGE(train.err.find("port") != std::string::npos, train.err);
  for (Process* process : {&runner, &daemon}) {
    process->signal(SIGTERM);
    CHECK(process->wait().code == 0);
  }
}
