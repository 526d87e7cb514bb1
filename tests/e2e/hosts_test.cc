// Several hosts: runners in network namespaces of this machine, joined over the daemon's Unix
// socket. Their replicas reach each other only through the addresses in TF_CONFIG.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>

#include <cstdlib>
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

// A daemon whose own host is host 0 of the network, and a runner on host 1; a worker fits on each, and
// two on none.
struct DaemonsHostAndAnother {
  Network network{2};
  Cluster cluster;
  std::unique_ptr<Process> runner;

  void start(const std::string& config) {
    fs::create_directories(cluster.home());
    write_file(cluster.home() / "config.yml", "host: {mem: 4GiB" + config + "}\n");
    Command daemon = cluster.command({"daemon", "start"});
    daemon.netns = network.netns(0);
    const Output started = run(daemon);
    REQUIRE_MESSAGE(started.code == 0, started.all());
    const std::string socket = facts(cluster.run({"daemon", "status", "--json"}))["socket"];
    Command joining = cluster.command({"runner", "run", "--join", "unix:" + socket, "--home",
                                       (cluster.folder() / "other").string(), "--address",
                                       Network::address(1), "--name", "other", "--mem", "4GiB"});
    joining.netns = network.netns(1);
    runner = std::make_unique<Process>(joining);
    runner->wait_for("joined the daemon");
  }
  fs::path project() {
    return cluster.project("meet", {{"dtrain.yml", R"(project: meet
train:
  framework: tensorflow
  resources: {cpus: 0.5, mem: 3GiB}
  tensorflow:
    distributed: {worker: 2, ps: 0}
  run: python meet.py
)"},
                                    {"meet.py", R"(import json, os, socket
print("at", os.environ["DTRAIN_ADDRESS"], "by", os.environ.get("GLOO_SOCKET_IFNAME"), flush=True)
config = json.loads(os.environ["TF_CONFIG"])
first, second = [worker.rsplit(":", 1) for worker in config["cluster"]["worker"]]
print("worker", first[0], second[0], flush=True)
def listen(at):
    return socket.create_server((at[0], int(at[1])))
def dial(at):
    while True:
        try:
            return socket.create_connection((at[0], int(at[1])))
        except ConnectionRefusedError:
            pass  # it is about to listen
if config["task"]["index"] == 0:
    listen(first).accept()[0].recv(1)
    dial(second).send(b"2")
else:
    mine = listen(second)
    dial(first).send(b"1")
    mine.accept()[0].recv(1)
print("met", flush=True)
)"}});
  }
};

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

TEST_CASE("the daemon's own host takes part in a gang by the address that config.yml gives it") {
  DaemonsHostAndAnother hosts;
  if (!hosts.network.unavailable().empty()) return say_skipped(hosts.network.unavailable());
  hosts.start(", address: " + Network::address(0));
  const Output train = hosts.cluster.run({"train"}, hosts.project());
  REQUIRE_MESSAGE(train.code == 0, train.all());
  for (int host = 0; host < 2; ++host) {
    const std::string at = "at " + Network::address(host) + " by eth0";
    CHECK_MESSAGE(train.out.find(at) != std::string::npos, train.out);
  }
  const Json shown = facts(hosts.cluster.run({"status", "1", "--json"}));
  const std::string first = shown["replicas"][0]["address"], second = shown["replicas"][1]["address"];
  CHECK(first != second);
  CHECK_MESSAGE(train.out.find("worker " + first + " " + second) != std::string::npos, train.out);
  const Output table = hosts.cluster.run({"hosts"});
  for (int host = 0; host < 2; ++host) {
    CHECK_MESSAGE(table.out.find(Network::address(host)) != std::string::npos, table.out);
  }
  // Together on one host they need none.
  const Output alone =
      hosts.cluster.run({"train", "--set", "train.resources.mem=100"}, hosts.project());
  CHECK_MESSAGE(alone.out.find("worker 127.0.0.1 127.0.0.1") != std::string::npos, alone.all());
  CHECK_MESSAGE(alone.out.find("at 127.0.0.1 by None") != std::string::npos, alone.all());
}

// PyTorch's Gloo binds what the host's name resolves to: on a Debian, as it is installed, a loopback
// address.
TEST_CASE("PyTorch's workers on two hosts find each other, whatever the hosts' names mean") {
  const char* python = std::getenv("DTRAIN_TEST_PYTHON");
  if (python == nullptr) return say_skipped("DTRAIN_TEST_PYTHON names no python with torch");
  if (std::system(("'" + std::string(python) + "' -c 'import torch' 2> /dev/null").c_str()) != 0) {
    return say_skipped(std::string(python) + " has no torch");
  }
  DaemonsHostAndAnother hosts;
  if (!hosts.network.unavailable().empty()) return say_skipped(hosts.network.unavailable());
  hosts.start(", address: " + Network::address(0));
  const fs::path project = hosts.cluster.folder() / "pytorch-ddp";
  fs::copy(std::string(SOURCE_DIR) + "/examples/pytorch-ddp", project);
  const std::string run = "train.run='" + std::string(python) + "' train.py --epochs 1";
  const Output train =
      hosts.cluster.run({"train", "--set", "train.resources.mem=3GiB", "--set", run}, project,
                        std::chrono::seconds(180));
  REQUIRE_MESSAGE(train.code == 0, train.all());
  CHECK_MESSAGE(train.out.find("epoch=1 ") != std::string::npos, train.out);
  const Json shown = facts(hosts.cluster.run({"status", "1", "--json"}));
  CHECK(shown["replicas"][0]["host_id"] != shown["replicas"][1]["host_id"]);
}

TEST_CASE("without an address the daemon's own host shares no gang, and says what would help") {
  DaemonsHostAndAnother hosts;
  if (!hosts.network.unavailable().empty()) return say_skipped(hosts.network.unavailable());
  hosts.start("");
  const fs::path project = hosts.project();
  for (const auto& words : {std::vector<std::string>{"train"}, {"train", "--dry-run"}}) {
    const Output refused = hosts.cluster.run(words, project);
    CHECK_MESSAGE(refused.code == 2, refused.all());
    CHECK_MESSAGE(refused.err.find("has no address that other hosts reach") != std::string::npos,
                  refused.err);
    CHECK_MESSAGE(refused.err.find("config.yml") != std::string::npos, refused.err);
  }
  const Output table = hosts.cluster.run({"hosts"});
  CHECK_MESSAGE(table.out.find("no address") != std::string::npos, table.out);
}

TEST_CASE("--host takes the ID that `hosts` shows, where two have one name") {
  Cluster cluster;
  Process daemon(cluster.command({"daemon", "run", "--no-local-runner"}));
  daemon.wait_for("listening on");
  const std::string socket = facts(cluster.run({"daemon", "status", "--json"}))["socket"];
  std::vector<std::unique_ptr<Process>> runners;
  for (const char* home : {"one", "two"}) {
    runners.push_back(cluster.start({"runner", "run", "--join", "unix:" + socket, "--home",
                                     (cluster.folder() / home).string(), "--name", "twin"}));
    runners.back()->wait_for("joined the daemon");
  }
  const fs::path project = cluster.project("project: twins\ntrain: {run: echo}\n");
  const Json known = facts(cluster.run({"hosts", "--json"}))["hosts"];
  CHECK(known.size() == 2);
  for (const Json& host : known) {
    const std::string id = host["id"];
    const Output plan =
        cluster.run({"train", "--dry-run", "--json", "--host", id.substr(0, 8)}, project);
    REQUIRE_MESSAGE(plan.code == 0, plan.all());
    CHECK(facts(plan)["seats"][0]["host_id"] == id);
  }
  const Output unknown = cluster.run({"train", "--dry-run", "--host", "triplet"}, project);
  CHECK(unknown.code == 2);
  CHECK_MESSAGE(unknown.err.find("twin (") != std::string::npos, unknown.err);
}

TEST_CASE("a drained host takes nothing more until it is undrained, whichever daemon runs, and says so") {
  Cluster cluster;
  const fs::path project = cluster.project("project: p\ntrain: {resources: {cpus: 0.1, mem: 16}, run: exec sleep 1000}\n");
  REQUIRE(cluster.run({"train", "-d"}, project).code == 0);
  const Json shown = facts(cluster.run({"hosts", "--json"}));
  const std::string id = shown["hosts"][0]["id"], name = shown["hosts"][0]["name"];
  const Output drained = cluster.run({"hosts", "drain", id.substr(0, 8)});
  REQUIRE_MESSAGE(drained.code == 0, drained.all());
  CHECK(drained.out == name + " takes nothing more; dtrain hosts undrain " + id.substr(0, 8) +
                           " has it do so again\nThere goes on what it has: 1. dtrain wait 1 waits for that, dtrain kill ends it\n");
  CHECK(says(cluster.run({"hosts"}), name + ": drained; what runs there goes on"));
  REQUIRE(cluster.run({"daemon", "stop"}).code == 0);
  REQUIRE(cluster.run({"daemon", "start"}).code == 0);
  const auto waiting = cluster.start({"train", "--set", "train.run=echo at last"}, project);
  waiting->wait_for("waits for " + name + ", which is drained");
  CHECK(facts(cluster.run({"hosts", "--json"}))["hosts"][0]["drained"] == true);
  CHECK(facts(cluster.run({"hosts", "drain", name, "--json"}))["experiments"] == Json::array({"1"}));
  const Output undrained = cluster.run({"hosts", "undrain", name});
  CHECK(undrained.out == name + " takes replicas again\n");
  waiting->wait_for("at last");
  const Output unknown = cluster.run({"hosts", "drain", "nobody"});
  CHECK(unknown.code == 2);
  CHECK_MESSAGE(says(unknown, "no host is named 'nobody'"), unknown.all());
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

TEST_CASE("why and kill name a host that is away, and what it still ran ends when its runner is back") {
  Cluster cluster;
  const fs::path reached = cluster.folder() / "reached", held = cluster.folder() / "held";
  REQUIRE(mkfifo(reached.c_str(), 0600) == 0);
  REQUIRE(mkfifo(held.c_str(), 0600) == 0);
  fs::path project = cluster.project(
      "project: p\ntrain:\n  resources: {cpus: 0.5, mem: 40TiB}\n  run: echo $$ > " + reached.string() +
      "; exec cat " + held.string() + "\n");
  REQUIRE(cluster.run({"daemon", "start"}).code == 0);
  const std::vector<std::string> join = {
      "runner", "run", "--join", "unix:" + facts(cluster.run({"daemon", "status", "--json"}))["socket"].get<std::string>(),
      "--home", (cluster.folder() / "h2").string(), "--address", "192.0.2.2", "--name", "h2", "--cpus", "4",
      "--mem", "60TiB"};
  auto runner = cluster.start(join);
  runner->wait_for("joined the daemon");
  auto train = cluster.start({"train"}, project);
  train->wait_for("--> RUNNING");
  Command read;
  read.argv = {"/bin/cat", reached.string()};   // which waits for the program to write it
  const pid_t pid = std::stoi(run(read).out);
  runner->signal(SIGKILL);
  runner->wait();
  // The daemon hears of it by itself, soon.
  Output why;
  for (int i = 0; i < 200 && why.out.find("away") == std::string::npos; ++i) {
    why = cluster.run({"why", "1"}, project);
  }
  CHECK_MESSAGE(why.out.find("Why: h2 has been away for ") != std::string::npos, why.all());
  CHECK_MESSAGE(why.out.find("1.train may go on there") != std::string::npos, why.all());
  const Output kill = cluster.run({"kill", "1"}, project);
  CHECK_MESSAGE(kill.out.find("1 is being killed; on h2, which is away, its processes end when its runner "
                              "is back") == 0,
                kill.all());
  why = cluster.run({"why", "1"}, project);
  CHECK_MESSAGE(why.out.find("Why: killed; waits for h2, which has been away for ") != std::string::npos,
                why.all());
  CHECK(::kill(pid, 0) == 0);
  runner = cluster.start(join);
  CHECK(train->wait().code == 130);
  CHECK(::kill(pid, 0) != 0);
}
