#include "runner/agent.h"

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>

#include "schema/fd.h"
#include "runner/process_tree.h"

namespace dtrain::runner {
namespace {
namespace fs = std::filesystem;
namespace asio = boost::asio;

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "dtrain-agent-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  fs::path path;
};

// What the agent said, in order.
class Recorder : public Outbox {
 public:
  void send(pb::FromRunner message) override { said.push_back(std::move(message)); }
  std::vector<pb::FromRunner> said;
};

class NoBlobs : public BlobSource {
 public:
  Status fetch(const std::vector<std::string>&,
               const std::function<Status(const pb::BlobPart&)>&) override {
    if (on_fetch) on_fetch();
    return Error{Code::Unavailable, "no daemon", ""};
  }
  std::function<void()> on_fetch;   // on another thread
};

// One runner process's worth of objects. Destroying it is what a crash of the runner is: keepers go
// on.
class Runner {
 public:
  enum class Adopt { Now, Later };
  Runner(const fs::path& home, Recorder& recorder, Adopt adopt = Adopt::Now) : outbox(recorder) {
    LaunchSite site;
    site.home = home;
    site.host_name = "test";
    site.inherited = inherited_environment(own_process_environment());
    site.cgroups = claim_cgroups(CgroupChoice::None);
    auto trees = Trees::open(home / "trees");
    REQUIRE(trees.ok());
    site.trees = std::move(trees).value();
    site.blobs = &blobs;
    AgentOptions options;
    options.host_id = std::string(32, 'a');
    options.keeper_executable = fs::path(BIN_DIR) / "runner_program";
    agent = std::make_unique<Agent>(loop, options, std::move(site), outbox,
                                    [] { return pb::Inventory(); });
    if (adopt == Adopt::Now) REQUIRE(agent->adopt().ok());
  }

  void connect(const pb::Welcome& welcome = {}) {
    agent->on_connected();
    pb::ToRunner message;
    *message.mutable_welcome() = welcome;
    agent->on_message(message);
  }

  void tell(const std::function<void(pb::ToRunner&)>& fill) {
    pb::ToRunner message;
    fill(message);
    agent->on_message(message);
  }

  // Runs the loop until `done`; false after ten seconds.
  bool until(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!done()) {
      loop.restart();
      if (std::chrono::steady_clock::now() > deadline) return false;
      loop.run_one_until(deadline);
    }
    return true;
  }

  asio::io_context loop{1};
  NoBlobs blobs;
  Recorder& outbox;
  std::unique_ptr<Agent> agent;
};

struct Scene {
  TemporaryFolder folder;
  Recorder recorder;

  std::unique_ptr<Runner> runner() { return std::make_unique<Runner>(folder.path, recorder); }

  pb::Launch launch(const std::string& run, uint32_t attempt = 1) const {
    pb::Launch message;
    message.set_experiment("4");
    message.set_attempt(attempt);
    message.set_spec_yaml(
        "project: testing\ntrain:\n  resources: {cpus: 1, mem: 64, gpus: 0}\n  run: |-\n    " +
        run + "\n");
    message.set_output_dir((folder.path / "out").string());
    pb::SeatInfo& seat = *message.add_gang();
    seat.set_replica("4.train");
    seat.set_host_id(std::string(32, 'a'));
    seat.set_address("127.0.0.1");
    seat.set_cpus(1);
    seat.set_memory_bytes(64 << 20);
    message.add_replicas("4.train");
    return message;
  }

  size_t count(pb::FromRunner::WhatCase what) const {
    size_t n = 0;
    for (const auto& message : recorder.said) n += message.what_case() == what;
    return n;
  }
  const pb::FromRunner* last(pb::FromRunner::WhatCase what) const {
    const pb::FromRunner* found = nullptr;
    for (const auto& message : recorder.said) {
      if (message.what_case() == what) found = &message;
    }
    return found;
  }
  std::string output() const {
    std::string text;
    for (const auto& message : recorder.said) {
      if (message.has_log() && message.log().offset() == text.size()) text += message.log().data();
    }
    return text;
  }
};

void start(Runner& runner, uint32_t attempt = 1) {
  runner.tell([&](pb::ToRunner& message) {
    message.mutable_start()->set_experiment("4");
    message.mutable_start()->set_attempt(attempt);
  });
}

void acknowledge(Runner& runner, uint64_t offset) {
  runner.tell([&](pb::ToRunner& message) {
    message.mutable_log_ack()->set_replica("4.train");
    message.mutable_log_ack()->set_attempt(1);
    message.mutable_log_ack()->set_offset(offset);
  });
}

void stop(Runner& runner, uint64_t grace_ms, uint32_t attempt = 1) {
  runner.tell([&](pb::ToRunner& message) {
    message.mutable_stop()->set_experiment("4");
    message.mutable_stop()->set_grace_ms(grace_ms);
    pb::HeldReplica& held = *message.mutable_stop()->add_replicas();
    held.set_replica("4.train");
    held.set_attempt(attempt);
  });
}

void forget(Runner& runner) {
  runner.tell([&](pb::ToRunner& message) {
    message.mutable_forget()->set_experiment("4");
    pb::HeldReplica& held = *message.mutable_forget()->add_replicas();
    held.set_replica("4.train");
    held.set_attempt(1);
  });
}

// Ends whatever the case left behind, keeper included.
void finish(Scene& scene, Runner& runner) {
  forget(runner);
  CHECK(runner.until([&] { return runner.agent->launches_held() == 0; }));
  CHECK(runner.until([&] { return fs::is_empty(scene.folder.path / "launches"); }));
}

TEST_CASE("a launch goes from Prepared through its output to Released, and is forgotten") {
  Scene scene;
  auto runner = scene.runner();
  runner->connect();
  CHECK(scene.recorder.said.front().has_hello());
  runner->tell([&](pb::ToRunner& m) {
    *m.mutable_launch() = scene.launch("echo hello from $DTRAIN_REPLICA; exit 3");
  });
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kPrepared) != nullptr; }));
  CHECK(scene.last(pb::FromRunner::kStarted) == nullptr);
  start(*runner);
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kExited) != nullptr; }));
  CHECK(scene.count(pb::FromRunner::kStarted) == 1);
  const pb::ExitStatus status = scene.last(pb::FromRunner::kExited)->exited().status();
  CHECK(status.code() == 3);
  CHECK(status.cause() == "exit code 3");
  const std::string expected = "hello from 4.train\n";
  CHECK(status.log_bytes() == expected.size());
  REQUIRE(runner->until([&] { return scene.output() == expected; }));
  CHECK(scene.last(pb::FromRunner::kReleased) == nullptr);
  acknowledge(*runner, expected.size());
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kReleased) != nullptr; }));
  finish(scene, *runner);
}

TEST_CASE("repeated, late and stale messages change nothing") {
  Scene scene;
  auto runner = scene.runner();
  runner->connect();
  const auto launch = [&](pb::ToRunner& m) { *m.mutable_launch() = scene.launch("echo once"); };
  runner->tell(launch);
  runner->tell(launch);
  start(*runner);  // too early: nobody was told it is prepared
  start(*runner, 7);
  stop(*runner, 0, 7);
  CHECK(scene.count(pb::FromRunner::kReleased) == 1);  // of attempt 7: nothing of it is alive
  CHECK(scene.last(pb::FromRunner::kReleased)->released().attempt() == 7);
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kPrepared) != nullptr; }));
  start(*runner);
  start(*runner);
  REQUIRE(runner->until([&] { return scene.output() == "once\n"; }));
  acknowledge(*runner, 5);
  acknowledge(*runner, 5);
  acknowledge(*runner, 500);
  REQUIRE(runner->until([&] { return scene.count(pb::FromRunner::kReleased) == 2; }));
  CHECK(scene.count(pb::FromRunner::kStarted) == 1);
  CHECK(scene.count(pb::FromRunner::kExited) == 1);
  stop(*runner, 0);
  runner->tell(launch);
  CHECK(scene.count(pb::FromRunner::kPrepared) ==
        2);  // it is held: the fact again, no second process
  finish(scene, *runner);
}

TEST_CASE("stop before start: no process, an exit that says so, and Released") {
  Scene scene;
  auto runner = scene.runner();
  runner->connect();
  runner->tell([&](pb::ToRunner& m) { *m.mutable_launch() = scene.launch("echo never"); });
  SUBCASE("while it is being prepared") {}
  SUBCASE("once it is prepared") {
    REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kPrepared) != nullptr; }));
  }
  stop(*runner, 1000);
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kReleased) != nullptr; }));
  CHECK(scene.count(pb::FromRunner::kExited) == 1);
  CHECK(scene.count(pb::FromRunner::kStarted) == 0);
  CHECK(scene.output().empty());
  finish(scene, *runner);
}

TEST_CASE("stop ends a program that ignores TERM, after the grace") {
  Scene scene;
  auto runner = scene.runner();
  runner->connect();
  runner->tell([&](pb::ToRunner& m) {
    *m.mutable_launch() = scene.launch("trap '' TERM; echo up; while :; do sleep 100; done");
  });
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kPrepared) != nullptr; }));
  start(*runner);
  REQUIRE(runner->until([&] { return scene.output() == "up\n"; }));
  stop(*runner, 50);
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kExited) != nullptr; }));
  CHECK(scene.last(pb::FromRunner::kExited)->exited().status().signal() == SIGKILL);
  acknowledge(*runner, 3);
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kReleased) != nullptr; }));
  finish(scene, *runner);
}

TEST_CASE("the next runner adopts what runs, and says everything again") {
  Scene scene;
  auto runner = scene.runner();
  runner->connect();
  runner->tell([&](pb::ToRunner& m) {
    *m.mutable_launch() = scene.launch("echo before; read x < " +
                                       (scene.folder.path / "gate").string() + "; echo after");
  });
  const fs::path gate = scene.folder.path / "gate";
  REQUIRE(mkfifo(gate.c_str(), 0600) == 0);
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kPrepared) != nullptr; }));
  start(*runner);
  REQUIRE(runner->until([&] { return scene.output() == "before\n"; }));
  acknowledge(*runner, 4);
  const uint64_t pid = scene.last(pb::FromRunner::kStarted)->started().pid();
  runner.reset();
  scene.recorder.said.clear();

  runner = scene.runner();
  pb::Welcome welcome;
  pb::LogAck& log = *welcome.add_logs();
  log.set_replica("4.train");
  log.set_attempt(1);
  log.set_offset(4);
  runner->connect(welcome);
  REQUIRE(scene.recorder.said.front().hello().held_size() == 1);
  CHECK(scene.recorder.said.front().hello().held(0).replica() == "4.train");
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kLog) != nullptr; }));
  CHECK(scene.count(pb::FromRunner::kPrepared) == 1);
  CHECK(scene.last(pb::FromRunner::kStarted)->started().pid() == pid);
  CHECK(scene.last(pb::FromRunner::kLog)->log().offset() == 4);
  CHECK(scene.last(pb::FromRunner::kLog)->log().data() == "re\n");
  start(*runner);  // the daemon can't know; nothing starts twice

  std::ofstream(gate) << "go\n";
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kExited) != nullptr; }));
  CHECK(scene.last(pb::FromRunner::kExited)->exited().status().code() == 0);
  acknowledge(*runner, 13);
  REQUIRE(runner->until([&] {
    acknowledge(*runner, 13);
    return scene.last(pb::FromRunner::kReleased) != nullptr;
  }));
  finish(scene, *runner);
}

// Everything that carries the launch's mark; a keeper is found by its record.
bool anything_alive(const fs::path& launch) {
  const auto marks = marks_of_launch(LaunchDir(launch));
  REQUIRE(marks.ok());
  return !find_tree(ProcessTable::read(), *marks).empty();
}

TEST_CASE("a launch that can't be read for want of descriptors is not taken for absent") {
  Scene scene;
  auto runner = scene.runner();
  runner->connect();
  runner->tell([&](pb::ToRunner& m) { *m.mutable_launch() = scene.launch("true"); });
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kPrepared) != nullptr; }));
  const auto facts = read_facts(LaunchDir(scene.folder.path / "launches/4@1"));
  REQUIRE((facts.ok() && facts->keeper));
  runner.reset();

  runner = std::make_unique<Runner>(scene.folder.path, scene.recorder, Runner::Adopt::Later);
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit tight = before;
  // One is enough to list the launches.
  tight.rlim_cur = static_cast<rlim_t>(Fd(open("/dev/null", O_RDONLY)).get()) + 1;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &tight) == 0);
  const Status adopted = runner->agent->adopt();
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  REQUIRE(!adopted.ok());
  CHECK(adopted.error().code == Code::ResourceExhausted);
  CHECK(is_alive(*facts->keeper));

  REQUIRE(runner->agent->adopt().ok());
  CHECK(runner->agent->launches_held() == 1);
  runner->connect();
  start(*runner);
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kReleased) != nullptr; }));
  finish(scene, *runner);
}

TEST_CASE("a dead keeper takes its replicas with it, and the exit says why") {
  Scene scene;
  auto runner = scene.runner();
  runner->connect();
  runner->tell([&](pb::ToRunner& m) {
    *m.mutable_launch() =
        scene.launch("setsid sleep 1000 & trap '' TERM HUP; echo up; sleep 1000; sleep 1000");
  });
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kPrepared) != nullptr; }));
  start(*runner);
  REQUIRE(runner->until([&] { return scene.output() == "up\n"; }));
  const fs::path launch = scene.folder.path / "launches/4@1";
  const auto facts = read_facts(LaunchDir(launch));
  REQUIRE((facts.ok() && facts->keeper));
  const pid_t pid = facts->keeper->pid;
  const Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));

  SUBCASE("while the runner lives") {
    REQUIRE(kill(pid, SIGKILL) == 0);
  }
  SUBCASE("while no runner lives") {
    runner.reset();
    scene.recorder.said.clear();
    REQUIRE(kill(pid, SIGKILL) == 0);
    pollfd ended{pidfd.get(), POLLIN, 0};
    REQUIRE(poll(&ended, 1, -1) == 1);
    runner = scene.runner();
    // Before the first word to a daemon.
    CHECK(!anything_alive(launch));
    runner->connect();
  }
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kExited) != nullptr; }));
  const pb::ExitStatus status = scene.last(pb::FromRunner::kExited)->exited().status();
  CHECK(status.lost_keeper());
  CHECK(status.cause() == "its keeper died");
  CHECK(status.log_bytes() == 3);
  CHECK(!anything_alive(launch));
  REQUIRE(runner->until([&] {
    acknowledge(*runner, 3);
    return scene.last(pb::FromRunner::kReleased) != nullptr;
  }));
  finish(scene, *runner);
}

TEST_CASE("a launch that can't be prepared says why and whose fault it is") {
  Scene scene;
  auto runner = scene.runner();
  runner->connect();
  pb::Launch launch = scene.launch("true");
  const auto failed = [&]() -> const pb::PrepareFailed& {
    runner->tell([&](pb::ToRunner& m) { *m.mutable_launch() = launch; });
    REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kPrepareFailed) != nullptr; }));
    return scene.last(pb::FromRunner::kPrepareFailed)->prepare_failed();
  };

  SUBCASE("a port that a stranger listens on") {
    const Fd stranger(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    setsockopt(stranger.get(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(bind(stranger.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(listen(stranger.get(), 1) == 0);
    socklen_t size = sizeof address;
    REQUIRE(getsockname(stranger.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    launch.mutable_gang(0)->set_port(ntohs(address.sin_port));
    CHECK(failed().port_taken() == ntohs(address.sin_port));
    CHECK(failed().ours());
  }
  SUBCASE("an environment that is not on this host") {
    (*launch.mutable_user_env())["VIRTUAL_ENV"] = "/nowhere/venv";
    CHECK(failed().reason().find("/nowhere/venv, does not exist on host test") !=
          std::string::npos);
    CHECK(!failed().ours());
  }
  SUBCASE("a snapshot that can't be fetched") {
    launch.set_snapshot(std::string(32, 'x'));
    CHECK(failed().reason().find("no daemon") != std::string::npos);
    CHECK(failed().ours());
  }
  SUBCASE("an output directory that can't be made") {
    launch.set_output_dir("/proc/nowhere/out");
    CHECK(failed().reason().find("/proc/nowhere/out") != std::string::npos);
    CHECK(failed().ours());
  }
  CHECK(runner->until([&] { return runner->agent->launches_held() == 0; }));
  CHECK(fs::is_empty(scene.folder.path / "launches"));
  CHECK(fs::is_empty(scene.folder.path / "work"));
}

TEST_CASE("a launch that failed while no daemon was there is said to have failed by the next stream") {
  Scene scene;
  auto runner = scene.runner();
  runner->connect();
  std::atomic<int> asked = 0;
  std::promise<void> go_on;
  runner->blobs.on_fetch = [&] {
    if (++asked == 2) go_on.get_future().wait();
  };
  pb::Launch launch = scene.launch("true");
  launch.set_snapshot(std::string(32, 'x'));
  runner->tell([&](pb::ToRunner& m) { *m.mutable_launch() = launch; });
  launch.set_attempt(2);
  runner->tell([&](pb::ToRunner& m) { *m.mutable_launch() = launch; });
  runner->agent->on_disconnected();
  // The thread for files is at the second: of the first it has said that it failed.
  REQUIRE(runner->until([&] { return asked == 2; }));
  runner->loop.restart();   // without work it stops, and a stopped loop polls nothing
  runner->loop.poll();
  CHECK(scene.count(pb::FromRunner::kPrepareFailed) == 0);
  runner->connect();
  REQUIRE(scene.count(pb::FromRunner::kPrepareFailed) == 1);
  CHECK(scene.last(pb::FromRunner::kPrepareFailed)->prepare_failed().attempt() == 1);
  go_on.set_value();
  REQUIRE(runner->until([&] { return runner->agent->launches_held() == 0; }));
  CHECK(scene.count(pb::FromRunner::kPrepareFailed) == 2);
  runner->agent->on_disconnected();
  runner->connect();
  CHECK(scene.count(pb::FromRunner::kPrepareFailed) == 2);
}

TEST_CASE("output waits in the spool while the daemon is away, and resumes where it has it") {
  Scene scene;
  auto runner = scene.runner();
  runner->connect();
  runner->tell([&](pb::ToRunner& m) { *m.mutable_launch() = scene.launch("seq 1 200000"); });
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kPrepared) != nullptr; }));
  start(*runner);
  std::string expected;
  for (int i = 1; i <= 200000; ++i) expected += std::to_string(i) + "\n";
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kLog) != nullptr; }));
  runner->agent->on_disconnected();
  scene.recorder.said.clear();
  runner->loop.restart();
  runner->loop.run_one_for(std::chrono::milliseconds(1));
  CHECK(scene.recorder.said.empty());
  runner->connect();
  REQUIRE(runner->until([&] { return scene.output().size() >= expected.size(); }));
  CHECK(scene.output() == expected);
  for (const auto& message : scene.recorder.said) {
    if (message.has_log()) CHECK(message.log().data().size() <= kLogDataMaxBytes);
  }
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kExited) != nullptr; }));
  acknowledge(*runner, expected.size());
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kReleased) != nullptr; }));
  finish(scene, *runner);
}

}  // namespace
}  // namespace dtrain::runner
