// dtrain port-forward: a server that a replica is, as somebody elsewhere has it.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <thread>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"
#include "tests/support/local_client.h"

using namespace dtrain::tests;

namespace {

uint16_t number_after(const std::string& text, const std::string& words) {
  const size_t at = text.find(words);
  REQUIRE_MESSAGE(at != std::string::npos, text);
  return static_cast<uint16_t>(std::stoi(text.substr(at + words.size())));
}

// port_server.py as a replica, and what forwards to it.
struct Served {
  explicit Served(const std::string& train = "run: exec python3 server.py") {
    project = cluster.project("project", {{"dtrain.yml", fmt::format("project: p\ntrain:\n  resources: {{cpus: 0.1, mem: 64}}\n  python: /usr/bin/python3\n  {}\n", train)},
                                          {"server.py", read_file(SOURCE_DIR "/tests/e2e/port_server.py")}});
    REQUIRE(cluster.run({"train", "-d"}, project).code == 0);
    log = cluster.start({"logs", "-f", "1"}, project);
    log->wait_for("listens on ");
    log->wait_for(".\n");
    port = number_after(log->out(), "listens on ");
  }
  // To a free port here.
  void forward() {
    forwarding = cluster.start({"port-forward", fmt::format("0:{}", port)}, project);
    forwarding->wait_for(", port ");
    forwarding->wait_for("\n");
    local = number_after(forwarding->out(), "127.0.0.1:");
  }

  Cluster cluster;
  fs::path project;
  std::unique_ptr<Process> log, forwarding;
  uint16_t port = 0, local = 0;
};

}  // namespace

TEST_CASE("megabytes go both ways whole, and the end of what is sent reaches the server") {
  Served scene;
  scene.forward();
  CHECK(scene.forwarding->out() == fmt::format("127.0.0.1:{} -> 1.train on {}, port {}\n", scene.local,
                                               facts(scene.cluster.run({"hosts", "--json"}))["hosts"][0]["name"].get<std::string>(), scene.port));
  Client client(scene.local, "echo\n");
  const std::string bytes = made_up(6'000'000, 1);
  client.write(bytes);
  client.end_input();
  CHECK(client.read_all() == echoed(bytes));
  CHECK_FALSE(client.was_reset);
  // The server's end, while the client says more.
  Client half(scene.local, "half\n");
  CHECK(half.read_all() == "half\n");
  half.write(bytes);
  half.end_input();
  scene.log->wait_for("heard " + dtrain::to_hex(dtrain::sha256(bytes)));
  // And while it says nothing.
  Client greeted(scene.local, "hello\n");
  CHECK(greeted.read_all() == "hello\n");
  Client reset(scene.local, "reset\n");
  CHECK(reset.read_all().empty());
  CHECK(reset.was_reset);
  scene.forwarding->signal(SIGINT);
  const Output left = scene.forwarding->wait();
  CHECK(left.code == 0);
  CHECK_MESSAGE(left.err.empty(), left.err);
}

TEST_CASE("who gave up waiting for a server that hangs is in nobody's way") {
  Served scene;
  scene.forward();
  for (int i = 0; i < 300; ++i) {
    Client gone(scene.local, "deaf\n");
    REQUIRE(gone.read_line() == "deaf\n");
  }
  Client greeted(scene.local, "hello\n");
  CHECK(greeted.read_all() == "hello\n");
}

TEST_CASE("two hundred at once, of which those that stand still hold up no other") {
  Served scene;
  scene.forward();
  Client flooded(scene.local, "flood\n");   // is not read
  scene.log->wait_for("floods");
  Client deaf(scene.local, "deaf\n");       // is not read by the server
  REQUIRE(deaf.read_line() == "deaf\n");
  std::thread pushing([fd = deaf.fd()] {
    const std::string more(1 << 16, 'x');
    while (::send(fd, more.data(), more.size(), MSG_NOSIGNAL) > 0) {
    }
  });

  std::vector<std::unique_ptr<Client>> clients;
  for (uint32_t i = 0; i < 200; ++i) clients.push_back(std::make_unique<Client>(scene.local, "echo\n"));
  for (uint32_t i = 0; i < 200; ++i) clients[i]->write(made_up(20'000 + i, i));
  for (auto& client : clients) client->end_input();
  for (uint32_t i = 0; i < 200; ++i) {
    CAPTURE(i);
    REQUIRE(clients[i]->read_all() == echoed(made_up(20'000 + i, i)));
  }
  ::shutdown(deaf.fd(), SHUT_RDWR);
  pushing.join();
  // Whoever was slow has lost nothing by it.
  for (int i = 0; i < 100; ++i) REQUIRE_FALSE(flooded.read_some().empty());
  flooded = Client(scene.local, "hello\n");
  scene.log->wait_for("flood ended");
  CHECK(flooded.read_all() == "hello\n");
}

TEST_CASE("that nobody listens there is said once, until somebody does") {
  Served scene;
  scene.forward();
  CHECK(Client(scene.local, "leave\n").read_line() == "left\n");
  for (int i = 0; i < 3; ++i) {
    Client refused(scene.local);
    CHECK(refused.read_all().empty());
  }
  scene.forwarding->signal(SIGTERM);
  const Output left = scene.forwarding->wait();
  CHECK(left.code == 0);
  const std::string said = fmt::format("dtrain: nothing listens on port {} of ", scene.port);
  CHECK_MESSAGE(left.err.starts_with(said), left.err);
  CHECK(left.err.find(said, 1) == std::string::npos);
}

TEST_CASE("forwarding ends with the experiment, after what was said before, and says so") {
  Served scene;
  scene.forward();
  Client waiting(scene.local, "wait\n");
  REQUIRE(waiting.read_line() == "waits\n");
  Client client(scene.local, "exit 3\n");
  CHECK(client.read_all() == "the last words\n");
  CHECK(waiting.read_all().empty());
  const Output ended = scene.forwarding->wait();
  CHECK(ended.code == 0);
  CHECK_MESSAGE(ended.err == "1 is over: FAILED (1.train: exit code 3)\n", ended.err);
  const Output again = scene.cluster.run({"port-forward", "1", "0:80"}, scene.project);
  CHECK(again.code == 2);
  CHECK_MESSAGE(says(again, "1 is over: FAILED"), again.all());
}

TEST_CASE("connections that come after a new attempt began lead to its replica, and a daemon that dies ends none of it") {
  Served scene("restart: {limit: 1}\n  run: exec python3 server.py \"$OUTPUT_DIR/port\"");
  scene.forward();
  const std::string first = Client(scene.local, "pid\n").read_line();
  Client failing(scene.local, "exit 3\n");
  CHECK(failing.read_all() == "the last words\n");
  scene.log->wait_for_next("listens on ");
  const std::string second = Client(scene.local, "pid\n").read_line();
  CHECK_FALSE(second.empty());
  CHECK(second != first);

  const auto daemons = scene.cluster.processes("daemon run");
  REQUIRE(daemons.size() == 1);
  Client waiting(scene.local, "wait\n");
  REQUIRE(waiting.read_line() == "waits\n");
  REQUIRE(::kill(daemons.front(), SIGKILL) == 0);
  CHECK(waiting.read_all().empty());
  CHECK(waiting.was_reset);   // it was not its server's end
  // The new daemon is reached as soon as it is there, and the host a moment later.
  CHECK(scene.cluster.run({"train", "--", "true"}, scene.project).code == 0);
  CHECK(Client(scene.local, "pid\n").read_line() == second);
}

TEST_CASE("forwarding ends with the replica that was named, though the experiment goes on") {
  Cluster cluster;
  const fs::path gate = cluster.folder() / "gate", go_on = cluster.folder() / "go-on";
  REQUIRE(::mkfifo(gate.c_str(), 0600) == 0);
  REQUIRE(::mkfifo(go_on.c_str(), 0600) == 0);
  const fs::path project = cluster.project(fmt::format(
      "project: p\ntrain:\n  framework: tensorflow\n  resources: {{cpus: 0.1, mem: 32}}\n  tensorflow: {{distributed: {{worker: 2}}}}\n"
      "  python: /usr/bin/python3\n  run: |\n    echo ready\n    if [ $DTRAIN_REPLICA = 1.master ]; then cat {}; else cat {}; fi\n",
      go_on.string(), gate.string()));
  REQUIRE(cluster.run({"train", "-d"}, project).code == 0);
  for (const char* each : {"1.master", "1.worker.1"}) cluster.start({"logs", "-f", each}, project)->wait_for("ready");
  auto of_worker = cluster.start({"port-forward", "1.worker.1", "0:80", "0:81"}, project);
  of_worker->wait_for(", port 81\n");
  auto of_all = cluster.start({"port-forward", "1", "0:80"}, project);
  of_all->wait_for("-> 1.master on ");
  write_file(gate, "on\n");
  const Output ended = of_worker->wait();
  CHECK(ended.code == 0);
  CHECK_MESSAGE(ended.err == "1.worker.1 has ended: FINISHED\n", ended.err);
  CHECK(of_all->is_running());
  write_file(go_on, "on\n");
  CHECK(of_all->wait().err == "1 is over: FINISHED\n");
}

TEST_CASE("what is wrong about a port-forward is said at once") {
  Served scene;
  const auto refusal_of = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "port-forward");
    const Output refused = scene.cluster.run(words, scene.project);
    CHECK(refused.code == 2);
    return refused.err;
  };
  CHECK(refusal_of({"1", "65536"}).find("'65536' is no port") != std::string::npos);
  CHECK(refusal_of({"1", "8888", "8888:80"}).find("would lead to two places") != std::string::npos);
  CHECK(refusal_of({}).find("which port?") != std::string::npos);
  CHECK(refusal_of({"7", "80"}).find("7") != std::string::npos);
  CHECK(refusal_of({"1"}) == "dtrain: which port of 1?\n  hint: dtrain port-forward 1 6006; port 1 of the newest: dtrain port-forward 1:1\n");
  CHECK(refusal_of({"1.worker.1", "0:80"}).find("experiment 1 has no 1.worker.1") != std::string::npos);
  // The replica's own server has that one.
  CHECK(refusal_of({"1", fmt::format("{}", scene.port)}).find(fmt::format("port {} of this machine is in use by another program", scene.port)) != std::string::npos);
}
