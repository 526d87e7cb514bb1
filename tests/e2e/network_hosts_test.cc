// Hosts that join by a key, over the network: runners in network namespaces of this machine that know nothing of the
// daemon's socket.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"
#include "tests/support/local_client.h"
#include "tests/support/network.h"
#include "tests/support/skipped.h"

using namespace dtrain::tests;

namespace {

// The daemon on host 0 of a network, and a key for host 1, called "far". Two replicas fit on no host.
struct DaemonOnNetwork {
  Network network{2};
  Cluster cluster;
  std::unique_ptr<Process> runner;

  // In a namespace of its own every port is free.
  void start_daemon(const std::string& address = Network::address(0)) {
    fs::create_directories(cluster.home());
    write_file(cluster.home() / "config.yml", "host: {mem: 4GiB}\nlisten: '" + address + ":7077'\n");
    Command daemon = cluster.command({"daemon", "start"});
    daemon.netns = network.netns(0);
    const Output started = run(daemon);
    REQUIRE_MESSAGE(started.code == 0, started.all());
  }
  void invite() {
    const Output invited = cluster.run({"hosts", "invite", "far"}, cluster.folder());
    REQUIRE_MESSAGE(invited.code == 0, invited.all());
    CHECK_MESSAGE(invited.out.find("dtrain runner run --join far.key") != std::string::npos, invited.out);
  }
  Command joining() const {
    Command command = cluster.command({"runner", "run", "--join", (cluster.folder() / "far.key").string(), "--home",
                                       (cluster.folder() / "far").string(), "--mem", "4GiB"});
    command.netns = network.netns(1);
    command.env["DTRAIN_HOME"] = (cluster.folder() / "none").string();
    return command;
  }
  void start() {
    start_daemon();
    invite();
    runner = std::make_unique<Process>(joining());
    runner->wait_for("joined the daemon");
  }
};

}  // namespace

TEST_CASE("a host with a key trains together with the daemon's own, by addresses that nobody wrote down") {
  DaemonOnNetwork scene;
  if (!scene.network.unavailable().empty()) return say_skipped(scene.network.unavailable());
  scene.start();
  const fs::path key = scene.cluster.folder() / "far.key";
  CHECK((fs::status(key).permissions() & fs::perms::all) == (fs::perms::owner_read | fs::perms::owner_write));
  const Output table = scene.cluster.run({"hosts"});
  for (int host = 0; host < 2; ++host) {
    CHECK_MESSAGE(table.out.find(Network::address(host)) != std::string::npos, table.out);
  }
  const fs::path project = scene.cluster.project("spread", {{"dtrain.yml", R"(project: spread
train:
  framework: tensorflow
  resources: {cpus: 0.5, mem: 3GiB}
  tensorflow: {distributed: {worker: 2}}
  run: echo here at $DTRAIN_ADDRESS; cat large | cksum; echo done > $OUTPUT_DIR/$DTRAIN_REPLICA
)"},
                                                           {"large", std::string(5 << 20, 'x')}});
  const Output train = scene.cluster.run({"train"}, project);
  REQUIRE_MESSAGE(train.code == 0, train.all());
  for (int host = 0; host < 2; ++host) {
    CHECK_MESSAGE(train.out.find("here at " + Network::address(host)) != std::string::npos, train.out);
  }
  CHECK(read_file(project / "runs/1/1.master") == "done\n");
  CHECK(read_file(project / "runs/1/1.worker.1") == "done\n");
}

TEST_CASE("a gang over hosts has its environment made on each of them") {
  DaemonOnNetwork scene;
  if (!scene.network.unavailable().empty()) return say_skipped(scene.network.unavailable());
  scene.start();
  const fs::path project = scene.cluster.project(R"(project: p
train:
  framework: tensorflow
  resources: {cpus: 0.5, mem: 3GiB}
  tensorflow: {distributed: {worker: 2}}
  install: ["echo told ${TF_CONFIG:-nothing of a cluster}"]
  run: python -c 'import sys; print("in", sys.prefix)'
)");
  const Output train = scene.cluster.run({"train"}, project);
  REQUIRE_MESSAGE(train.code == 0, train.all());
  for (const std::string runner : {"home/runner", "far"}) {
    CHECK_MESSAGE(train.out.find("in " + (scene.cluster.folder() / runner / "envs").string()) != std::string::npos, train.out);
  }
  for (const std::string build : {"1.build.1", "1.build.2"}) {
    const Output log = scene.cluster.run({"logs", build});
    CHECK_MESSAGE(log.out.find("told nothing of a cluster") != std::string::npos, log.all());
  }
}

TEST_CASE("hosts that have IPv6 train together by it") {
  DaemonOnNetwork scene;
  scene.network.add_ipv6();
  if (!scene.network.unavailable().empty()) return say_skipped(scene.network.unavailable());
  scene.start_daemon("[" + Network::ipv6_address(0) + "]");
  scene.invite();
  scene.runner = std::make_unique<Process>(scene.joining());
  scene.runner->wait_for("joined the daemon");
  const fs::path project = scene.cluster.folder() / "parameter-server";
  fs::copy(SOURCE_DIR "/examples/parameter-server", project);
  // A server on each host.
  const Output train = scene.cluster.run({"train", "--set", "train.resources.mem=1.5GiB", "--set", "train.resources.cpus=0.2",
                                          "--set", "train.tensorflow.distributed={worker: 1, ps: 3}", "-p", "epochs=1"},
                                         project);
  REQUIRE_MESSAGE(train.code == 0, train.all());
  for (int host = 0; host < 2; ++host) {
    const std::string serves = "listening=[" + Network::ipv6_address(host) + "]:";
    CHECK_MESSAGE(train.out.find(serves) != std::string::npos, train.out);
  }
}

TEST_CASE("two hundred connections at once lead to a server on a host with a key") {
  DaemonOnNetwork scene;
  if (!scene.network.unavailable().empty()) return say_skipped(scene.network.unavailable());
  scene.start();
  const fs::path project = scene.cluster.project("project", {{"dtrain.yml", "project: p\ntrain: {python: /usr/bin/python3, run: exec python3 server.py}\n"},
                                                             {"server.py", read_file(SOURCE_DIR "/tests/e2e/port_server.py")}});
  CHECK(scene.cluster.run({"train", "-d", "--host", "far"}, project).code == 0);
  auto log = scene.cluster.start({"logs", "--raw", "-f", "1"}, project);
  log->wait_for("listens on ");
  log->wait_for(".\n");
  const std::string there = std::to_string(std::stoi(log->out().substr(log->out().find("listens on ") + 11)));
  auto forwarding = scene.cluster.start({"port-forward", "0:" + there}, project);
  forwarding->wait_for("on far, port " + there + "\n");
  const auto here = static_cast<uint16_t>(std::stoi(forwarding->out().substr(10)));
  std::vector<std::unique_ptr<Client>> clients;
  for (uint32_t i = 0; i < 200; ++i) clients.push_back(std::make_unique<Client>(here, "echo\n" + made_up(20'000, i)));
  for (auto& client : clients) client->end_input();
  for (uint32_t i = 0; i < 200; ++i) {
    CAPTURE(i);
    REQUIRE(clients[i]->read_all() == echoed(made_up(20'000, i)));
  }
  // The runner goes, and what it carried breaks.
  Client waiting(here, "wait\n");
  REQUIRE(waiting.read_line() == "waits\n");
  scene.runner->signal(SIGKILL);
  CHECK(waiting.read_all().empty());
  CHECK(waiting.was_reset);
  forwarding->wait_for("its host has broken off, and the connection with it");
  CHECK(scene.runner->wait().code == 128 + SIGKILL);   // its lock is free
  scene.runner = std::make_unique<Process>(scene.joining());
  scene.runner->wait_for("joined the daemon");
  CHECK(scene.cluster.run({"kill", "1"}).code == 0);
  CHECK(scene.cluster.run({"wait", "1"}).code == 130);
  CHECK(forwarding->wait().err.find("1 is over: KILLED") != std::string::npos);
}

TEST_CASE("a command runs beside a replica on a host with a key, and is lost with its runner") {
  DaemonOnNetwork scene;
  if (!scene.network.unavailable().empty()) return say_skipped(scene.network.unavailable());
  scene.start();
  const fs::path project = scene.cluster.project("project: p\ntrain: {run: \"echo before; sleep 1000\"}\n");
  CHECK(scene.cluster.run({"train", "-d", "--host", "far"}, project).code == 0);
  scene.cluster.start({"logs", "-f", "1"}, project)->wait_for("before");
  const Output seen = scene.cluster.run({"exec", "1", "--", "sh", "-c", "head -c 3000000 /dev/zero; echo $DTRAIN_REPLICA >&2"}, project);
  CHECK_MESSAGE(seen.code == 0, seen.err);
  CHECK(seen.out == std::string(3'000'000, '\0'));
  CHECK(seen.err == "1.train\n");
  auto longer = scene.cluster.start({"exec", "1", "--", "sh", "-c", "echo begun; sleep 1000"}, project);
  longer->wait_for("begun");
  scene.runner->signal(SIGKILL);
  CHECK(longer->wait().code == 255);
  CHECK(scene.runner->wait().code == 128 + SIGKILL);   // its lock is free
  scene.runner = std::make_unique<Process>(scene.joining());
  scene.runner->wait_for("joined the daemon");
  CHECK(scene.cluster.run({"kill", "1"}).code == 0);
  CHECK(scene.cluster.run({"wait", "1"}).code == 130);
}

TEST_CASE("a host at the end of a long line joins, too") {
  DaemonOnNetwork scene;
  if (!scene.network.unavailable().empty()) return say_skipped(scene.network.unavailable());
  scene.start_daemon();
  scene.invite();
  const std::string daemon = Network::address(0) + ":7077", line = Network::address(1) + ":7077";
  Command slow_line;
  slow_line.argv = {"python3", SOURCE_DIR "/tests/support/slow_line.py", line, daemon, "150"};
  slow_line.netns = scene.network.netns(1);
  Process relay(slow_line);
  relay.wait_for("open");
  const fs::path key = scene.cluster.folder() / "far.key";
  std::string text = read_file(key);
  text.replace(text.find(daemon), daemon.size(), line);
  write_file(key, text);
  scene.runner = std::make_unique<Process>(scene.joining());
  scene.runner->wait_for("joined the daemon");
  const fs::path project = scene.cluster.project("project: p\ntrain: {run: echo here}\n");
  const Output train = scene.cluster.run({"train", "--host", "far"}, project);
  CHECK_MESSAGE(train.code == 0, train.all());
}

TEST_CASE("a key of another daemon opens nothing, and the host says what is wrong with it") {
  DaemonOnNetwork scene;
  if (!scene.network.unavailable().empty()) return say_skipped(scene.network.unavailable());
  scene.start_daemon();
  scene.invite();
  REQUIRE(scene.cluster.run({"daemon", "stop"}).code == 0);
  fs::remove_all(scene.cluster.home() / "keys");
  scene.start_daemon();
  scene.runner = std::make_unique<Process>(scene.joining());
  scene.runner->wait_for("is not the daemon that this key is of");
}

TEST_CASE("what runs on a host with a key goes on while the daemon is away, and all of its output comes") {
  DaemonOnNetwork scene;
  if (!scene.network.unavailable().empty()) return say_skipped(scene.network.unavailable());
  scene.start();
  const fs::path go = scene.cluster.folder() / "go";
  REQUIRE(mkfifo(go.c_str(), 0600) == 0);
  const fs::path project = scene.cluster.project("project: p\ntrain: {run: \"echo before; cat " + go.string() + "\"}\n");
  auto train = scene.cluster.start({"train", "--host", "far"}, project);
  train->wait_for("before");
  REQUIRE(scene.cluster.run({"daemon", "stop"}).code == 0);
  scene.runner->wait_for("no daemon: ");
  std::ofstream(go) << "meanwhile\n";
  scene.start_daemon();
  scene.runner->wait_for_next("joined the daemon");
  const Output ended = train->wait();
  CHECK_MESSAGE(ended.code == 0, ended.all());
  CHECK_MESSAGE(ended.out.find("meanwhile") != std::string::npos, ended.out);
}

TEST_CASE("a key that is revoked cuts its host off; what is invited and not here is shown") {
  DaemonOnNetwork scene;
  if (!scene.network.unavailable().empty()) return say_skipped(scene.network.unavailable());
  scene.start_daemon();
  scene.invite();
  CHECK(scene.cluster.run({"hosts"}).out.find("far: has a key, and is not here") != std::string::npos);
  scene.runner = std::make_unique<Process>(scene.joining());
  scene.runner->wait_for("joined the daemon");
  CHECK(facts(scene.cluster.run({"hosts", "--json"}))["invited"].empty());
  const Output again = scene.cluster.run({"hosts", "invite", "far", "-o", "other.key"}, scene.cluster.folder());
  CHECK(again.code == 2);
  CHECK_MESSAGE(again.err.find("far has a key") != std::string::npos, again.err);
  CHECK(!fs::exists(scene.cluster.folder() / "other.key"));
  CHECK(scene.cluster.run({"hosts", "revoke", "far"}).code == 0);
  scene.runner->wait_for("the key of 'far' was revoked");
  // Its stream may end a moment later.
  std::string left = "far";
  for (int look = 0; look < 1'000 && left.find("far") != left.npos; ++look) left = scene.cluster.run({"hosts"}).out;
  CHECK_MESSAGE(left.find("far") == left.npos, left);
  const std::string log = read_file(scene.cluster.home() / "daemon.log");
  CHECK_MESSAGE(has_in_order(log, {"host far has a key now\n", "host far has joined\n", "host far: its key is revoked\n", "host far is away\n"}), log);
  CHECK(scene.cluster.run({"hosts", "revoke", "far"}).code == 2);
}

TEST_CASE("a host that has lost its home is told what becomes of its key") {
  DaemonOnNetwork scene;
  if (!scene.network.unavailable().empty()) return say_skipped(scene.network.unavailable());
  scene.start();
  scene.runner->signal(SIGTERM);
  CHECK(scene.runner->wait().code == 0);
  Command anew = scene.joining();
  *(std::ranges::find(anew.argv, "--home") + 1) = (scene.cluster.folder() / "another").string();
  scene.runner = std::make_unique<Process>(anew);
  scene.runner->wait_for("it refuses: the key of 'far' is another host's; a key for each host; where that one is gone for good, or its --home: "
                         "`dtrain hosts revoke far`, and invite it again");
}

TEST_CASE("a key that others can read is not taken") {
  DaemonOnNetwork scene;
  if (!scene.network.unavailable().empty()) return say_skipped(scene.network.unavailable());
  scene.start_daemon();
  scene.invite();
  fs::permissions(scene.cluster.folder() / "far.key", fs::perms::group_read, fs::perm_options::add);
  const Output joined = Process(scene.joining()).wait();
  CHECK(joined.code == 2);
  CHECK_MESSAGE(joined.err.find("far.key can be read by others") != std::string::npos, joined.err);
}

TEST_CASE("a daemon that can't listen yet invites nobody, and says why") {
  Cluster cluster;
  fs::create_directories(cluster.home());
  write_file(cluster.home() / "config.yml", "listen: 192.0.2.77:7077\n");  // no machine's
  const Output refused = cluster.run({"hosts", "invite", "far"}, cluster.folder());
  CHECK(refused.code == 2);
  CHECK_MESSAGE(refused.err.find("can't listen on 192.0.2.77:7077") != std::string::npos,
                refused.err);
  CHECK_MESSAGE(refused.err.find("config.yml") != std::string::npos, refused.err);
  const Output started = cluster.run({"daemon", "start"}, cluster.folder());
  CHECK(started.code == 0);
  CHECK_MESSAGE(started.err.find("can't listen on 192.0.2.77:7077") != std::string::npos, started.err);
}

TEST_CASE("a daemon that listens on its socket alone invites nobody, and says what to write down") {
  Cluster cluster;
  const Output refused = cluster.run({"hosts", "invite", "far"}, cluster.folder());
  CHECK(refused.code == 2);
  CHECK_MESSAGE(refused.err.find("daemon start --listen ADDRESS:PORT") != std::string::npos, refused.err);
  CHECK(!fs::exists(cluster.folder() / "far.key"));
  write_file(cluster.folder() / "no.key", "ssh-ed25519 AAAA\n");
  const Output no_key = cluster.run({"runner", "run", "--join", "no.key", "--home", "far"}, cluster.folder());
  CHECK(no_key.code == 2);
  CHECK_MESSAGE(no_key.err.find("no.key is not a host's key") != std::string::npos, no_key.err);
  for (const fs::path& join : {cluster.folder() / "lost.key", cluster.folder()}) {
    const Output lost = cluster.run({"runner", "run", "--join", join.string(), "--home", "far"}, cluster.folder());
    CHECK(lost.code == 2);
    CHECK_MESSAGE(lost.err.find("is neither a key that is there nor") != std::string::npos, lost.err);
  }
}

TEST_CASE("daemon start --listen lets others in, beside what runs") {
  Cluster cluster;
  cluster.own_ports();
  const fs::path config = cluster.home() / "config.yml";
  const std::string before = read_file(config);
  const fs::path project = cluster.project("project: p\ntrain: {resources: {cpus: 0.1, mem: 32}, run: sleep 1000}\n");
  CHECK(cluster.run({"train", "-d"}, project).code == 0);
  for (const char* wrong : {"here", "127.0.0.1", "gpu1:7077", "127.0.0.1:99999"}) {
    const Output refused = cluster.run({"daemon", "start", "--listen", wrong});
    CHECK(refused.code == 2);
    CHECK_MESSAGE(refused.err.find("is not ADDRESS:PORT") != std::string::npos, refused.err);
  }
  CHECK(read_file(config) == before);
  const Output started = cluster.run({"daemon", "start", "--listen", "127.0.0.1:0"});
  CHECK_MESSAGE(started.code == 0, started.all());
  CHECK(read_file(config) == before + "listen: '127.0.0.1:0'\n");
  CHECK(facts(cluster.run({"daemon", "status", "--json"}))["listens"].get<std::string>().starts_with("127.0.0.1:"));
  CHECK(facts(cluster.run({"status", "1", "--json"}))["attempt"] == 1);
  CHECK(says(cluster.run({"daemon", "start", "--listen", "127.0.0.1:0"}), "runs already"));
  const Output other = cluster.run({"daemon", "start", "--listen", "127.0.0.2:0"});
  CHECK(other.code == 2);
  CHECK_MESSAGE(other.err.find("says `listen: 127.0.0.1:0`") != std::string::npos, other.err);
}
