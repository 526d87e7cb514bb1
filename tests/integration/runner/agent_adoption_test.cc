// What the next runner makes of what an earlier one, or a keeper, left.
#include <netinet/in.h>
#include <sched.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <future>

#include "runner/process_tree.h"
#include "schema/small_file.h"
#include "schema/fd.h"
#include "tests/integration/runner/one_runner.h"
#include "tests/support/few_descriptors.h"
#include "tests/support/skipped.h"

namespace dtrain::runner {
namespace {

TEST_CASE("the next runner adopts what runs, and says everything again") {
  Scene scene;
  auto runner = scene.runner();
  runner->connect();
  runner->tell([&](pb::ToRunner& m) {
    *m.mutable_launch() = scene.launch("echo before; read x < " +
                                       (scene.folder.path() / "gate").string() + "; echo after");
  });
  const fs::path gate = scene.folder.path() / "gate";
  REQUIRE(mkfifo(gate.c_str(), 0600) == 0);
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kPrepared) != nullptr; }));
  start(*runner);
  REQUIRE(runner->until([&] {
    return scene.output() == "before\n" && scene.last(pb::FromRunner::kStarted) != nullptr;
  }));
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

// What runs on in this home, made for it, once the runner that began it is gone.
LaunchFacts left_running(Scene& scene, const fs::path& home) {
  fs::create_directory(home);
  auto runner = std::make_unique<Runner>(home, scene.recorder);
  runner->connect();
  runner->tell([&](pb::ToRunner& m) { *m.mutable_launch() = scene.launch("exec sleep 600"); });
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kPrepared) != nullptr; }));
  start(*runner);
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kStarted) != nullptr; }));
  runner.reset();
  const auto facts = read_facts(LaunchDir(home / "launches/4@1"));
  REQUIRE((facts.ok() && facts->keeper));
  return *facts;
}

TEST_CASE("what runs is left alone by the runner of a copied home, and adopted in one that was moved") {
  Scene scene;
  const fs::path home = scene.folder / "home", copy = scene.folder / "copy", moved = scene.folder / "moved";
  const LaunchFacts facts = left_running(scene, home);

  fs::copy(home, copy, fs::copy_options::recursive);
  auto runner = std::make_unique<Runner>(copy, scene.recorder);
  CHECK(runner->agent->launches_held() == 0);
  CHECK(fs::is_empty(copy / "launches"));
  runner.reset();
  CHECK(is_alive(*facts.keeper));
  CHECK(is_alive(facts.starts.begin()->second.process));

  fs::rename(home, moved);
  runner = std::make_unique<Runner>(moved, scene.recorder);
  runner->connect();
  CHECK(runner->agent->launches_held() == 1);
  stop(*runner, 0);
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kReleased) != nullptr; }));
  forget(*runner);
  CHECK(runner->until([&] { return runner->agent->launches_held() == 0; }));
}

TEST_CASE("what runs is ended where a copy took the place of its home, as a backup that is put back") {
  Scene scene;
  const fs::path home = scene.folder / "home", moved = scene.folder / "moved";
  const LaunchFacts facts = left_running(scene, home);

  fs::rename(home, moved);
  fs::copy(moved, home, fs::copy_options::recursive);
  const auto runner = std::make_unique<Runner>(home, scene.recorder);
  CHECK(runner->agent->launches_held() == 0);
  CHECK(fs::is_empty(home / "launches"));
  CHECK(!is_alive(*facts.keeper));
  CHECK(!is_alive(facts.starts.begin()->second.process));
}

// Everything that carries the launch's mark; a keeper is found by its record.
bool anything_alive(const fs::path& launch) {
  const auto marks = marks_of_launch(LaunchDir(launch));
  REQUIRE(marks.ok());
  return !find_tree(ProcessTable::read(), *marks).empty();
}

// As the next runner does it with `spare` descriptors.
Status adopt_with(int spare, Runner& runner) {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit tight = before;
  tight.rlim_cur = static_cast<rlim_t>(Fd(open("/dev/null", O_RDONLY)).get() + spare);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &tight) == 0);
  Status adopted = runner.agent->adopt();
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  return adopted;
}

TEST_CASE("a launch that can't be read for want of descriptors is not taken for absent") {
  Scene scene;
  auto runner = scene.runner();
  runner->connect();
  runner->tell([&](pb::ToRunner& m) { *m.mutable_launch() = scene.launch("true"); });
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kPrepared) != nullptr; }));
  const auto facts = read_facts(LaunchDir(scene.folder.path() / "launches/4@1"));
  REQUIRE((facts.ok() && facts->keeper));
  runner.reset();

  runner = std::make_unique<Runner>(scene.folder.path(), scene.recorder, Runner::Adopt::Later);
  // One is enough to list the launches; with each more it gets a little further.
  int spare = 1;
  for (Status adopted = adopt_with(spare, *runner); !adopted.ok();
       adopted = adopt_with(++spare, *runner)) {
    CHECK(adopted.error().code == Code::ResourceExhausted);
    REQUIRE(is_alive(*facts->keeper));
  }
  CHECK(spare > 2);
  CHECK(is_alive(*facts->keeper));
  CHECK(runner->agent->launches_held() == 1);
  runner->connect();
  start(*runner);
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kReleased) != nullptr; }));
  finish(scene, *runner);
}

TEST_CASE("output that can't be read for want of descriptors comes later, though nothing changes any more") {
#ifdef __SANITIZE_ADDRESS__
  return tests::say_skipped("the sanitizer looks at memory through a pipe, and there is none");
#endif
  Scene scene;
  auto runner = scene.runner();
  runner->connect();
  runner->tell([&](pb::ToRunner& m) { *m.mutable_launch() = scene.launch("echo hello"); });
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kPrepared) != nullptr; }));
  const auto facts = read_facts(LaunchDir(scene.folder.path() / "launches/4@1"));
  REQUIRE((facts.ok() && facts->keeper));
  start(*runner);
  REQUIRE(runner->until([&] { return scene.output() == "hello\n"; }));
  runner.reset();
  while (is_alive(*facts->keeper)) usleep(1000);
  scene.recorder.said.clear();

  runner = scene.runner();
  {
    const test::FewDescriptors none;
    runner->connect();
    for (int i = 0; i < 10; ++i) runner->loop.poll();
    CHECK(scene.output().empty());
  }
  CHECK(runner->until([&] { return scene.output() == "hello\n"; }));
  acknowledge(*runner, 6);
  CHECK(runner->until([&] { return scene.last(pb::FromRunner::kReleased) != nullptr; }));
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
  const fs::path launch = scene.folder.path() / "launches/4@1";
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

TEST_CASE("what a lost attempt made does not replace what a later one did") {
  Scene scene;
  auto runner = scene.runner();
  runner->connect();
  pb::Launch message = scene.launch("");
  message.set_spec_yaml(
      "project: testing\ntrain:\n  resources: {cpus: 1, mem: 64}\n  outputs: [model, best]\n"
      "  run: 'echo old > model; echo old > best; echo up; exec sleep 1000'\n");
  bool away = false, leased = false;
  SUBCASE("as when its host was away") { away = true; }
  SUBCASE("as when its lease is over") { leased = true; }
  SUBCASE("but for as long as it has contact there is no later one") {}
  if (leased) message.set_lease_ms(6'000);
  runner->tell([&](pb::ToRunner& m) { *m.mutable_launch() = message; });
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kPrepared) != nullptr; }));
  start(*runner);
  REQUIRE(runner->until([&] { return scene.output() == "up\n"; }));
  const auto facts = read_facts(LaunchDir(scene.folder.path() / "launches/4@1"));
  REQUIRE((facts.ok() && facts->keeper));
  const fs::path model = scene.folder.path() / "out/model";
  if (away) {
    runner.reset();
    scene.recorder.said.clear();
  }
  test::write_file(model, "new\n");
  fs::last_write_time(model, fs::file_time_type::clock::now() + std::chrono::hours(1));
  if (!leased) REQUIRE(kill(facts->keeper->pid, SIGKILL) == 0);
  if (away) {
    runner = scene.runner();
    runner->connect();
  }
  REQUIRE(runner->until([&] {
    acknowledge(*runner, 3);
    return scene.last(pb::FromRunner::kReleased) != nullptr;
  }));
  const bool outrun = away || leased;
  CHECK(read_small_file(model) == (outrun ? "new\n" : "old\n"));
  CHECK(read_small_file(scene.folder.path() / "out/best") == "old\n");
  const std::string left = scene.last(pb::FromRunner::kReleased)->released().left_behind();
  CHECK(left.ends_with("not collected: model: what is there was written later") == outrun);
  finish(scene, *runner);
}

TEST_CASE("a keeper that somebody stopped does not hold up a stop") {
  Scene scene;
  auto runner = scene.runner();
  runner->connect();
  runner->tell([&](pb::ToRunner& m) {
    *m.mutable_launch() = scene.launch("trap '' TERM; echo up; while :; do sleep 1000; done");
  });
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kPrepared) != nullptr; }));
  start(*runner);
  REQUIRE(runner->until([&] { return scene.output() == "up\n"; }));
  const fs::path launch = scene.folder.path() / "launches/4@1";
  const auto facts = read_facts(LaunchDir(launch));
  REQUIRE((facts.ok() && facts->keeper));
  const pid_t keeper = facts->keeper->pid;
  const auto stop_it = [&] {
    stop(*runner, 0);
    REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kExited) != nullptr; }));
    const pb::ExitStatus status = scene.last(pb::FromRunner::kExited)->exited().status();
    CHECK(status.signal() == SIGKILL);
    CHECK(status.log_bytes() == 3);
    return status.lost_keeper();
  };

  SUBCASE("by a signal: it is continued, and ends its replicas itself") {
    REQUIRE(kill(keeper, SIGSTOP) == 0);
    while (!is_stopped(*facts->keeper)) ::sched_yield();
    CHECK(!stop_it());
  }
  SUBCASE("by a signal, and a runner that adopts it is asked") {
    runner.reset();
    scene.recorder.said.clear();
    REQUIRE(kill(keeper, SIGSTOP) == 0);
    runner = scene.runner();
    runner->connect();
    CHECK(!stop_it());
  }
  SUBCASE("by a debugger, which alone can continue it: it is killed, and what it left") {
    REQUIRE(::ptrace(PTRACE_SEIZE, keeper, nullptr, nullptr) == 0);
    REQUIRE(::ptrace(PTRACE_INTERRUPT, keeper, nullptr, nullptr) == 0);
    REQUIRE(::waitpid(keeper, nullptr, __WALL) == keeper);
    CHECK(is_stopped(*facts->keeper));
    CHECK(stop_it());
    CHECK(!anything_alive(launch));
    CHECK(::waitpid(keeper, nullptr, __WALL) == keeper);
  }
  REQUIRE(runner->until([&] {
    acknowledge(*runner, 3);
    return scene.last(pb::FromRunner::kReleased) != nullptr;
  }));
  finish(scene, *runner);
}

// This thread has a network of its own while it lives.
class OtherNetwork {
 public:
  OtherNetwork() : before_(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)) {
    entered_ = before_ && ::unshare(CLONE_NEWNET) == 0;
  }
  ~OtherNetwork() {
    if (entered_) CHECK(::setns(before_.get(), CLONE_NEWNET) == 0);
  }
  bool entered() const { return entered_; }

 private:
  const Fd before_;
  bool entered_ = false;
};

TEST_CASE("a keeper out of reach ends what is asked for, though another of its replicas has ended") {
  if (!OtherNetwork().entered()) return tests::say_skipped("needs the right to make a network namespace");
  Scene scene;
  auto runner = scene.runner();
  runner->connect();
  pb::Launch launch = scene.launch("");
  launch.set_spec_yaml(
      "project: testing\ntrain:\n  framework: tensorflow\n  resources: {cpus: 1, mem: 64}\n"
      "  tensorflow: {distributed: {worker: 2}}\n"
      "  run: '[ $DTRAIN_REPLICA = 4.worker.1 ] || exec sleep 1000'\n");
  launch.clear_replicas();
  pb::SeatInfo seat = launch.gang(0);
  launch.clear_gang();
  for (const char* id : {"4.worker.1", "4.worker.2"}) {
    launch.add_replicas(id);
    seat.set_replica(id);
    *launch.add_gang() = seat;
  }
  runner->tell([&](pb::ToRunner& m) { *m.mutable_launch() = launch; });
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kPrepared) != nullptr; }));
  start(*runner);
  REQUIRE(runner->until([&] {
    return scene.count(pb::FromRunner::kStarted) == 2 && scene.count(pb::FromRunner::kExited) == 1;
  }));
  runner.reset();
  scene.recorder.said.clear();

  const OtherNetwork elsewhere;
  REQUIRE(elsewhere.entered());
  runner = scene.runner();
  runner->connect();
  REQUIRE(scene.count(pb::FromRunner::kExited) == 1);
  runner->tell([&](pb::ToRunner& m) {
    m.mutable_stop()->set_experiment("4");
    pb::HeldReplica& held = *m.mutable_stop()->add_replicas();
    held.set_replica("4.worker.2");
    held.set_attempt(1);
  });
  CHECK(runner->until([&] { return scene.count(pb::FromRunner::kExited) == 2; }));
  CHECK(!anything_alive(scene.folder.path() / "launches/4@1"));
}

TEST_CASE("what a dead keeper left is looked for until there are descriptors for it") {
  Scene scene;
  auto runner = scene.runner();
  runner->connect();
  runner->tell([&](pb::ToRunner& m) {
    *m.mutable_launch() = scene.launch("setsid sleep 1000 & trap '' TERM HUP; echo up; sleep 1000");
  });
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kPrepared) != nullptr; }));
  start(*runner);
  REQUIRE(runner->until([&] { return scene.output() == "up\n"; }));
  const fs::path launch = scene.folder.path() / "launches/4@1";
  const auto facts = read_facts(LaunchDir(launch));
  REQUIRE((facts.ok() && facts->keeper));
  const Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, facts->keeper->pid, 0)));
  runner.reset();
  REQUIRE(kill(facts->keeper->pid, SIGKILL) == 0);
  pollfd ended{pidfd.get(), POLLIN, 0};
  REQUIRE(poll(&ended, 1, -1) == 1);

  runner = std::make_unique<Runner>(scene.folder.path(), scene.recorder, Runner::Adopt::Later);
  int spare = 1;
  for (Status adopted = adopt_with(spare, *runner); !adopted.ok();
       adopted = adopt_with(++spare, *runner)) {
    CHECK(adopted.error().code == Code::ResourceExhausted);
    REQUIRE(spare < 20);
  }
  CHECK(!anything_alive(launch));
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

}  // namespace
}  // namespace dtrain::runner
