// Training survives every one of dtrain's own processes but the keeper, whose loss ends it cleanly.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <thread>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"

using namespace dtrain::tests;

namespace {

// Prints "before", waits until the gate is written to, prints what came and "afterwards".
struct Gated {
  explicit Gated(Cluster& cluster) : gate(cluster.folder() / "gate") {
    REQUIRE(mkfifo(gate.c_str(), 0600) == 0);
    project = cluster.project(
        "project: p\ntrain:\n  resources: {cpus: 0.1, mem: 32}\n"
        "  run: echo before; cat " +
        gate.string() + "; echo afterwards\n");
    CHECK(cluster.run({"train", "-d"}, project).code == 0);
    logs = cluster.start({"logs", "-f", "1"}, project);
    logs->wait_for("before");
  }
  void open(const std::string& words) { write_file(gate, words + "\n"); }

  fs::path gate;
  fs::path project;
  std::unique_ptr<Process> logs;
};

void kill_only(const std::vector<pid_t>& pids) {
  REQUIRE(pids.size() == 1);
  REQUIRE(::kill(pids[0], SIGKILL) == 0);
}

void check_undisturbed(Cluster& cluster, const std::string& words) {
  CHECK(cluster.run({"wait", "1"}).code == 0);
  Output all = cluster.run({"logs", "1"});
  CHECK(says(all, "before"));
  CHECK(says(all, words));
  CHECK_MESSAGE(says(all, "afterwards"), all.all());
  CHECK(facts(cluster.run({"status", "1", "--json"}))["attempt"] == 1);
}

// A copy of dtrain that can be replaced.
fs::path installed(Cluster& cluster) {
  const fs::path program = cluster.folder() / "dtrain";
  fs::copy(BIN_DIR "/dtrain", program);
  cluster.use(program);
  return program;
}

// As a package manager does it: the old file lives on, nameless, in those that run it.
void upgrade(const fs::path& program) {
  fs::copy(BIN_DIR "/dtrain", program.string() + ".new");
  fs::rename(program.string() + ".new", program);
}

}  // namespace

TEST_CASE("the daemon is killed: what is written meanwhile is not lost, nothing starts twice") {
  Cluster cluster;
  Gated gated(cluster);
  kill_only(cluster.processes("daemon run"));
  gated.open("while nobody schedules");
  check_undisturbed(cluster, "while nobody schedules");
  CHECK(says(gated.logs->wait(), "afterwards"));
}

TEST_CASE("a log that is lost while its replica runs is made good from what the host still has") {
  Cluster cluster;
  Gated gated(cluster);
  gated.logs.reset();
  kill_only(cluster.processes("daemon run"));
  CHECK(cluster.run({"status"}).code == 0);   // the runner knows by then that its log is safe
  kill_only(cluster.processes("daemon run"));
  REQUIRE(fs::remove(cluster.home() / "logs/1.journal"));
  gated.open("after the loss");
  check_undisturbed(cluster, "after the loss");
}

TEST_CASE("the daemon is killed and nobody types a command: the runner starts another") {
  Cluster cluster;
  Gated gated(cluster);
  gated.logs.reset();
  pid_t first = cluster.processes("daemon run").at(0);
  int changes = inotify_init1(IN_CLOEXEC);
  REQUIRE(inotify_add_watch(changes, (cluster.home() / "daemon.lock").c_str(), IN_MODIFY) >= 0);
  kill_only({first});
  pollfd written{changes, POLLIN, 0};  // by the next one, which holds the lock now
  CHECK(poll(&written, 1, 30'000) == 1);
  close(changes);
  gated.open("on our own");
  check_undisturbed(cluster, "on our own");
}

TEST_CASE("what goes on without a daemon is ended by `daemon stop --kill` all the same") {
  Cluster cluster;
  Gated gated(cluster);
  gated.logs.reset();
  CHECK(cluster.run({"daemon", "stop"}).code == 0);
  CHECK(!cluster.processes("cat ").empty());
  CHECK(cluster.run({"daemon", "stop", "--kill"}).code == 0);
  CHECK(cluster.processes("cat ").empty());
  CHECK(cluster.run({"daemon", "start"}).code == 0);
  CHECK(facts(cluster.run({"status", "1", "--json"}))["state"] == "KILLED");
}

TEST_CASE("a daemon that is killed just when one is to be started is followed by another") {
  Cluster cluster;
  fs::create_directories(cluster.home());
  // It listens, but of those who come nobody gets an answer, and the third finds it dead.
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string path = cluster.home() / "socket";
  REQUIRE(path.copy(address.sun_path, sizeof(address.sun_path) - 1) == path.size());
  const int dying = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(bind(dying, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  REQUIRE(listen(dying, 8) == 0);
  std::thread end([&] {
    for (int come = 1; come <= 3; ++come) {
      const int one = accept(dying, nullptr, nullptr);
      if (come == 3) close(dying);
      close(one);
    }
  });
  const Output output = cluster.run({"daemon", "start"});
  end.join();
  CHECK_MESSAGE(output.code == 0, output.all());
  CHECK_MESSAGE(says(output, "The daemon runs (pid "), output.all());
}

TEST_CASE("the runner hangs: it is replaced, and training never notices") {
  Cluster cluster;
  fs::create_directories(cluster.home());
  write_file(cluster.home() / "config.yml", "runner-timeout: 1s\n");
  Gated gated(cluster);
  const pid_t hung = cluster.processes("runner run").at(0);
  const int changes = inotify_init1(IN_CLOEXEC);
  REQUIRE(inotify_add_watch(changes, (cluster.home() / "runner/lock").c_str(), IN_MODIFY) >= 0);
  REQUIRE(::kill(hung, SIGSTOP) == 0);
  pollfd written{changes, POLLIN, 0};  // by the next one, which holds the lock now
  CHECK(poll(&written, 1, 30'000) == 1);
  close(changes);
  gated.open("in spite of it");
  check_undisturbed(cluster, "in spite of it");
}

TEST_CASE("the runner is killed: the next one adopts what runs") {
  Cluster cluster;
  Gated gated(cluster);
  kill_only(cluster.processes("runner run"));
  gated.open("while nobody watches");
  check_undisturbed(cluster, "while nobody watches");
}

TEST_CASE("the daemon is killed, then the runner that outlived it: the next daemon sees it end") {
  Cluster cluster;
  Gated gated(cluster);
  gated.logs.reset();
  kill_only(cluster.processes("daemon run"));
  CHECK(cluster.run({"status"}).code == 0);
  const pid_t outlived = cluster.processes("runner run").at(0);
  kill_only({outlived});
  gated.open("while nobody watches");
  check_undisturbed(cluster, "while nobody watches");
  const std::string told =
      "the local runner (pid " + std::to_string(outlived) + ") of an earlier daemon ended";
  CHECK(read_file(cluster.home() / "daemon.log").find(told) != std::string::npos);
}

TEST_CASE("what our own processes say takes a bounded part of the disk") {
  Cluster cluster;
  fs::create_directories(cluster.home());
  const std::string much(5 << 20, '.');
  for (const char* log : {"daemon.log", "runner.log"}) write_file(cluster.home() / log, much);
  CHECK(cluster.run({"train", "--", "true"}, cluster.folder()).code == 0);
  for (const std::string log : {"daemon.log", "runner.log"}) {
    CHECK(fs::file_size(cluster.home() / log) < 10'000);
    CHECK(fs::file_size(cluster.home() / log) > 0);
    CHECK(fs::file_size(cluster.home() / (log + ".1")) == much.size());
  }
}

TEST_CASE("daemon and runner are killed at once") {
  Cluster cluster;
  Gated gated(cluster);
  kill_only(cluster.processes("daemon run"));
  kill_only(cluster.processes("runner run"));
  gated.open("all alone");
  check_undisturbed(cluster, "all alone");
}

TEST_CASE("the keeper is killed: its replicas are gone and the reason says so") {
  Cluster cluster;
  Gated gated(cluster);
  kill_only(cluster.processes("keeper "));
  Output end = gated.logs->wait();
  CHECK(cluster.run({"wait", "1"}).code != 0);
  Output why = cluster.run({"why", "1"});
  CHECK_MESSAGE(says(why, "keeper"), why.all());
  CHECK(cluster.processes(gated.gate.string()).empty());
}

// It hears TERM, says so, and goes on.
constexpr const char* kDeaf =
    "project: p\ntrain:\n"
    "  run: (trap 'echo asked to end' TERM; echo deaf; while :; do sleep 1000 & wait; done)\n"
    "  stop-grace: 1h\n";

TEST_CASE("a stop that waits for what it ends says for whom, and nothing more begins meanwhile") {
  Cluster cluster;
  const fs::path project = cluster.project(kDeaf);
  auto train = cluster.start({"train"}, project);
  train->wait_for("deaf");
  auto stop = cluster.start({"daemon", "stop", "--kill"});
  train->wait_for("asked to end");
  const Output refused = cluster.run({"train", "-d"}, project);
  CHECK(refused.code != 0);
  CHECK_MESSAGE(says(refused, "the daemon is being stopped, and takes nothing more"), refused.all());
  stop->wait_for("1 has not ended yet: killed; waits for 1.train on ");
  CHECK(cluster.run({"kill", "1", "--force"}).code == 0);
  CHECK(stop->wait().code == 0);
  CHECK(train->wait().code == 130);
}

TEST_CASE("a stop that another one replaces takes nothing back") {
  Cluster cluster;
  const fs::path project = cluster.project(kDeaf);
  auto train = cluster.start({"train"}, project);
  train->wait_for("deaf");
  auto patient = cluster.start({"daemon", "stop", "--kill"});
  train->wait_for("asked to end");
  Output stop = cluster.run({"daemon", "stop"});
  CHECK_MESSAGE(stop.code == 0, stop.all());
  CHECK(patient->wait().code == 1);
  CHECK(fs::exists(cluster.home() / "stopped"));
  train->signal(SIGINT);
  train->wait();
  CHECK(cluster.run({"daemon", "start"}).code == 0);
  CHECK(cluster.run({"kill", "--force", "1"}).code == 0);
}

TEST_CASE("daemon stop leaves training alone, lists it, and daemon start comes back to it") {
  Cluster cluster;
  Gated gated(cluster);
  Output stop = cluster.run({"daemon", "stop"});
  CHECK(stop.code == 0);
  CHECK_MESSAGE(says(stop, "1.train"), stop.all());
  CHECK(cluster.run({"daemon", "start"}).code == 0);
  gated.open("after a rest");
  check_undisturbed(cluster, "after a rest");
}

TEST_CASE("a new executable takes over what the old one started") {
  Cluster cluster;
  const fs::path program = installed(cluster);
  Gated gated(cluster);
  upgrade(program);
  CHECK(cluster.run({"daemon", "stop"}).code == 0);
  CHECK(cluster.run({"daemon", "start"}).code == 0);
  const auto executable = [&cluster](const std::string& words) {
    return fs::read_symlink(fmt::format("/proc/{}/exe", cluster.processes(words).at(0))).string();
  };
  CHECK(executable("daemon run") == program);
  CHECK(executable("runner run") == program);
  CHECK(executable("keeper ") == program.string() + " (deleted)");
  gated.open("kept by the old one");
  check_undisturbed(cluster, "kept by the old one");
}

TEST_CASE("a file that rots in the daemon's copy is sent again by the next train") {
  Cluster cluster;
  const fs::path project = cluster.project("project: p\ntrain: {run: cksum data, resources: {cpus: 0.1, mem: 32}}\n");
  {   // of several parts, none of which compress
    std::ofstream file(project / "data", std::ios::binary);
    std::mt19937 random(1);
    for (int i = 0; i < 1'000'000; ++i) {
      const auto word = random();
      file.write(reinterpret_cast<const char*>(&word), 4);
    }
  }
  const Output first = cluster.run({"train"}, project);
  REQUIRE_MESSAGE(first.code == 0, first.all());
  const fs::path pack = cluster.home() / "blobs/1.pack";
  REQUIRE(fs::file_size(pack) > 3'000'000);
  {
    std::fstream file(pack, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(1'000'000);
    const auto byte = static_cast<char>(file.get() ^ 1);
    file.seekp(1'000'000);
    file.put(byte);
  }
  for (const auto& tree : fs::directory_iterator(cluster.home() / "runner/trees")) fs::remove_all(tree.path());
  write_file(project / "other", "another snapshot");
  const Output damaged = cluster.run({"train"}, project);
  CHECK(damaged.code != 0);
  CHECK_MESSAGE(says(damaged, "was found damaged; submit it again"), damaged.all());
  const Output again = cluster.run({"train"}, project);
  CHECK_MESSAGE(again.code == 0, again.all());
}

TEST_CASE("an executable that is replaced under a running dtrain disturbs nothing") {
  Cluster cluster;
  const fs::path program = installed(cluster);
  Gated gated(cluster);
  upgrade(program);
  kill_only(cluster.processes("runner run"));  // the daemon starts one of its own version
  gated.open("still the old one");
  check_undisturbed(cluster, "still the old one");
}

TEST_CASE("where the daemon's socket was deleted, it is said which process to end, and all goes on") {
  Cluster cluster;
  Gated gated(cluster);
  const pid_t deaf = cluster.processes("daemon run").at(0);
  fs::remove(cluster.home() / "socket");
  const Output status = cluster.run({"daemon", "status"});
  CHECK(status.code == 1);
  CHECK_MESSAGE(says(status, fmt::format("(pid {}) does not listen at {}/socket", deaf, cluster.home().string())),
                status.all());
  CHECK_MESSAGE(says(status, fmt::format("kill {} ends it", deaf)), status.all());
  REQUIRE(::kill(deaf, SIGTERM) == 0);
  gated.open("meanwhile");
  check_undisturbed(cluster, "meanwhile");
}

TEST_CASE("whoever removes the home ends all that ran in it") {
  Cluster cluster;
  Gated gated(cluster);
  const std::vector<pid_t> all = cluster.processes();
  CHECK(cluster.processes("keeper").size() >= 1);
  // What ends may write something into it meanwhile.
  std::error_code not_empty;
  do {
    fs::remove_all(cluster.home(), not_empty);
  } while (fs::exists(cluster.home()));
  Cluster::wait_until_gone(all);
  CHECK(cluster.processes().empty());
  CHECK(!fs::exists(cluster.home()));
}

TEST_CASE("a daemon whose lock was removed ends, and disturbs nothing") {
  Cluster cluster;
  Gated gated(cluster);
  const std::vector<pid_t> daemon = cluster.processes("daemon run"), runner = cluster.processes("runner run");
  fs::remove(cluster.home() / "daemon.lock");
  Cluster::wait_until_gone(daemon);
  gated.open("meanwhile");
  check_undisturbed(cluster, "meanwhile");
  CHECK(cluster.processes("runner run") == runner);
}

TEST_CASE("a runner whose home was emptied ends once there is another one") {
  Cluster cluster;
  Gated gated(cluster);
  const std::vector<pid_t> runner = cluster.processes("runner run"), daemon = cluster.processes("daemon run");
  for (const fs::directory_entry& entry : fs::directory_iterator(cluster.home())) {
    if (entry.path().filename() != "runner") fs::remove_all(entry.path());
  }
  fs::remove(cluster.home() / "runner/lock");
  Cluster::wait_until_gone(daemon);
  CHECK(cluster.run({"daemon", "start"}).code == 0);
  Cluster::wait_until_gone(runner);
  CHECK(cluster.processes("runner run").size() == 1);
}
