#include "runner/agent.h"

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <future>

#include "runner/launch_facts.h"
#include "runner/process_tree.h"
#include "schema/fd.h"
#include "tests/integration/runner/one_runner.h"

namespace dtrain::runner {
namespace {

// Another launch, whose preparation is held up at its project's files.
struct LongLaunch {
  std::promise<void> at_fetch, go_on;
  pb::Launch launch;

  LongLaunch(const Scene& scene, Runner& runner) : launch(scene.launch("true")) {
    runner.blobs.on_fetch = [this] {
      at_fetch.set_value();
      go_on.get_future().wait();
    };
    launch.set_experiment("5");
    launch.mutable_gang(0)->set_replica("5.train");
    launch.set_replicas(0, "5.train");
    launch.set_snapshot(std::string(32, 'x'));
  }
};

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

TEST_CASE("what ended is let go of while another launch is prepared for long") {
  Scene scene;
  auto runner = scene.runner();
  runner->connect();
  runner->tell([&](pb::ToRunner& m) { *m.mutable_launch() = scene.launch("true"); });
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kPrepared) != nullptr; }));
  LongLaunch other(scene, *runner);
  runner->tell([&](pb::ToRunner& m) { *m.mutable_launch() = other.launch; });
  other.at_fetch.get_future().wait();
  SUBCASE("its keeper ended it") { start(*runner); }
  SUBCASE("its keeper died") {
    const auto facts = read_facts(LaunchDir(scene.folder.path() / "launches/4@1"));
    REQUIRE((facts.ok() && facts->keeper));
    REQUIRE(kill(facts->keeper->pid, SIGKILL) == 0);
  }
  CHECK(runner->until([&] { return scene.last(pb::FromRunner::kReleased) != nullptr; }));
  other.go_on.set_value();
  CHECK(runner->until([&] { return scene.last(pb::FromRunner::kPrepareFailed) != nullptr; }));
  finish(scene, *runner);
}

TEST_CASE("what was forgotten uses no environment, though its directory is not gone yet") {
  Scene scene;
  auto runner = scene.runner();
  runner->connect();
  const fs::path made = scene.folder.path() / "envs/key/1";
  test::write_file(made / ".complete", "");
  test::write_file(made / "bin/python", "#!/bin/sh\n");
  fs::permissions(made / "bin/python", fs::perms::owner_all);
  pb::Launch launch = scene.launch("true");
  launch.set_spec_yaml(launch.spec_yaml() + "  python: " + made.string() + "\n");
  runner->tell([&](pb::ToRunner& m) { *m.mutable_launch() = launch; });
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kPrepared) != nullptr; }));
  start(*runner);
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kReleased) != nullptr; }));
  // Another launch is prepared for long: what is put off waits for it.
  LongLaunch other(scene, *runner);
  forget(*runner);
  runner->tell([&](pb::ToRunner& m) { *m.mutable_launch() = other.launch; });
  other.at_fetch.get_future().wait();
  REQUIRE(runner->until([&] { return runner->agent->launches_held() == 1; }));
  REQUIRE(fs::exists(scene.folder.path() / "launches/4@1"));
  runner->tell([](pb::ToRunner& m) { m.mutable_count_environments()->set_question(1); });
  runner->tell([](pb::ToRunner& m) { m.mutable_prune_environments(); });
  other.go_on.set_value();
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kUnusedEnvironments) != nullptr; }));
  CHECK(scene.last(pb::FromRunner::kUnusedEnvironments)->unused_environments().count() == 1);
  CHECK(runner->until([&] { return runner->agent->launches_held() == 0; }));
  CHECK(runner->until([&] { return fs::is_empty(scene.folder.path() / "launches"); }));
  CHECK(!fs::exists(made));
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

// The port that a program of no options gets when it asks for this one, 0: any; 0 if it gets none.
int bound_port(int port) {
  const Fd program(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (bind(program.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) return 0;
  REQUIRE(getsockname(program.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  return ntohs(address.sin_port);
}

TEST_CASE("stop before start: no process, an exit that says so, Released, and its port is free") {
  Scene scene;
  auto runner = scene.runner();
  runner->connect();
  pb::Launch launch = scene.launch("echo never");
  const int port = bound_port(0);
  launch.mutable_gang(0)->set_port(static_cast<uint32_t>(port));
  runner->tell([&](pb::ToRunner& m) { *m.mutable_launch() = launch; });
  SUBCASE("while it is being prepared") {}
  SUBCASE("once it is prepared") {
    REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kPrepared) != nullptr; }));
    CHECK(bound_port(port) == 0);
  }
  stop(*runner, 1000);
  REQUIRE(runner->until([&] { return scene.last(pb::FromRunner::kReleased) != nullptr; }));
  CHECK(bound_port(port) == port);
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
    CHECK(failed().reason() == "the VIRTUAL_ENV active at submit, /nowhere/venv, is not there");
    CHECK(failed().unfit());
    CHECK(!failed().ours());
  }
  SUBCASE("a data set that is not on this host: before anything is fetched") {
    launch.set_snapshot(std::string(32, 'x'));
    launch.set_spec_yaml(launch.spec_yaml() + "  data: {mnist: /no/such}\n");
    CHECK(failed().reason() == "data mnist: /no/such is not there");
    CHECK(failed().unfit());
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
  CHECK(fs::is_empty(scene.folder.path() / "launches"));
  CHECK(fs::is_empty(scene.folder.path() / "work"));
}

TEST_CASE("a failure told on a stream that broke is told again by the next, whose Hello names it") {
  Scene scene;
  auto runner = scene.runner();
  runner->connect();
  std::atomic<int> asked = 0;
  std::promise<void> at_second, go_on;
  runner->blobs.on_fetch = [&] {
    if (++asked != 2) return;
    at_second.set_value();
    go_on.get_future().wait();
  };
  pb::Launch launch = scene.launch("true");
  launch.set_snapshot(std::string(32, 'x'));
  runner->tell([&](pb::ToRunner& m) { *m.mutable_launch() = launch; });
  REQUIRE(runner->until([&] { return scene.count(pb::FromRunner::kPrepareFailed) == 1; }));
  launch.set_attempt(2);
  runner->tell([&](pb::ToRunner& m) { *m.mutable_launch() = launch; });
  runner->agent->on_disconnected();
  runner->agent->on_connected();
  REQUIRE(scene.last(pb::FromRunner::kHello)->hello().held_size() == 2);
  // Between Hello and Welcome all of the first launch is cleared away: the thread is at the second.
  at_second.get_future().wait();
  runner->loop.restart();
  runner->loop.poll();
  runner->tell([](pb::ToRunner& m) { m.mutable_welcome(); });
  CHECK(scene.count(pb::FromRunner::kPrepareFailed) == 2);
  CHECK(scene.last(pb::FromRunner::kPrepareFailed)->prepare_failed().attempt() == 1);
  go_on.set_value();
  REQUIRE(runner->until([&] { return runner->agent->launches_held() == 0; }));
}

TEST_CASE("a launch that failed for want of descriptors leaves nothing once there are some") {
  Scene scene;
  auto runner = scene.runner();
  runner->connect();
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  {
    const Fd next(::dup(0));
    const rlimit none{static_cast<rlim_t>(next.get()), before.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  }
  runner->tell([&](pb::ToRunner& m) { *m.mutable_launch() = scene.launch("true"); });
  const bool failed =
      runner->until([&] { return scene.last(pb::FromRunner::kPrepareFailed) != nullptr; });
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  REQUIRE(failed);
  CHECK(scene.last(pb::FromRunner::kPrepareFailed)->prepare_failed().ours());
  CHECK(runner->until([&] { return runner->agent->launches_held() == 0; }));
  CHECK(fs::is_empty(scene.folder.path() / "launches"));
  CHECK(fs::is_empty(scene.folder.path() / "work"));
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

TEST_CASE("what was left behind goes after a week, however long the runner runs") {
  Scene scene;
  AgentOptions options;
  options.old_work_every = std::chrono::milliseconds(10);
  Runner runner(scene.folder.path(), scene.recorder, Runner::Adopt::Now, options);
  runner.connect();
  runner.tell([&](pb::ToRunner& m) { *m.mutable_launch() = scene.launch("true"); });
  REQUIRE(runner.until([&] { return scene.last(pb::FromRunner::kPrepared) != nullptr; }));
  const fs::path running = scene.folder.path() / "work/4.train@1";
  const fs::path left = scene.folder.path() / "work/3.train@1";
  fs::create_directories(left / "project");
  for (const fs::path& place : {running, left}) {
    fs::last_write_time(place, fs::file_time_type::clock::now() - std::chrono::hours(8 * 24));
  }
  CHECK(runner.until([&] { return !fs::exists(left); }));
  CHECK(fs::exists(running));
  start(runner);
  REQUIRE(runner.until([&] { return scene.last(pb::FromRunner::kReleased) != nullptr; }));
  finish(scene, runner);
}

}  // namespace
}  // namespace dtrain::runner
