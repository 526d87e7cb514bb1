#include "runner/keeper.h"

#include <sys/resource.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

#include "tests/integration/runner/kept_launch.h"
#include "tests/support/skipped.h"

namespace dtrain::runner {
namespace {

using Steps = std::vector<std::string>;

// Every kind of tracking this host can do.
std::vector<CgroupChoice> choices() {
  std::vector<CgroupChoice> all{CgroupChoice::None};
  for (const CgroupChoice choice : {CgroupChoice::V1, CgroupChoice::Best}) {
    if (claim_cgroups(choice).kind != "none") all.push_back(choice);
  }
  return all;
}

// The keeper has removed the group, or whoever removes the launch later can: a kernel may let go of the
// last member only after it was waited for.
bool goes(const std::string& group) {
  const Fd events(::open((group + "/cgroup.events").c_str(), O_RDONLY | O_CLOEXEC));
  char text[64] = "";
  while (events && ::pread(events.get(), text, sizeof text - 1, 0) > 0 &&
         std::string_view(text).find("populated 1") != std::string_view::npos) {
    pollfd changed{events.get(), POLLPRI, 0};
    if (::poll(&changed, 1, kTestPatienceMs) != 1) return false;
  }
  return remove_cgroups({group}).ok() && !std::filesystem::exists(group);
}

std::string name_of(CgroupChoice choice) {
  return claim_cgroups(choice).kind;
}

TEST_CASE("a replica runs as its launch file says, and its end is written down") {
  KeptLaunch kept;
  const ReplicaId id =
      kept.add(1, {"--print", "hello", "--print-env", "GREETING", "--print-env", "HOME",
                   "--print-cwd", "--print-env", "DTRAIN_REPLICA", "--exit", "3"});
  kept.launch().replicas[0].env["GREETING"] = "good day\xff";
  kept.start();
  const ReplicaExit exit = kept.wait_exit(id);
  CHECK(exit.code == 3);
  CHECK(exit.signal == 0);
  CHECK(exit.cause == "exit code 3");
  const std::string expected =
      "hello\ngood day\xff\nunset\n" + kept.root().string() + "\n4.worker.1\n";
  CHECK(kept.output(id) == expected);
  CHECK(exit.log_bytes == expected.size());
  kept.send("bye");
  CHECK(kept.wait_keeper() == 0);
}

TEST_CASE("nothing runs before start, and start twice runs once") {
  KeptLaunch kept;
  const ReplicaId id = kept.add(1, {"--print", "once", "--open-fifo", "gate"});
  kept.keep();
  CHECK(kept.survivors().empty());
  CHECK(kept.facts().starts.empty());
  REQUIRE(::mkfifo((kept.root() / "gate").c_str(), 0600) == 0);
  kept.send_start();
  kept.send_start();
  kept.wait_output(id, "once");
  CHECK(kept.survivors().size() == 1);
  { Fd gate(::open((kept.root() / "gate").c_str(), O_WRONLY)); }
  CHECK(kept.wait_exit(id).code == 0);
  CHECK(kept.output(id) == "once\n");
}

TEST_CASE("a replica that was stopped before start never runs") {
  KeptLaunch kept;
  const ReplicaId id = kept.add(1, {"--print", "ran"});
  kept.keep();
  kept.stop(id, 1000);
  const ReplicaExit exit = kept.wait_exit(id);
  CHECK(exit.code == 143);
  CHECK(exit.cause == "stopped before it was started");
  kept.send_start();
  kept.send("bye");
  CHECK(kept.wait_keeper() == 0);
  CHECK(kept.output(id).empty());
}

TEST_CASE("what a failure-policy asks about is told with the exit, and who prints what ends it is ended") {
  KeptLaunch kept;
  kept.launch().watched = {{1, "^good", false}, {3, "nan", true}};
  kept.launch().grace_ms = kTestPatienceMs;
  const ReplicaId ends = kept.add(1, {"--exit-on", "15", "0", "--print", "good day", "--print", "loss=nan", "--hang"});
  const ReplicaId fails = kept.add(2, {"--print", "good bye", "--exit", "3"});
  const ReplicaId already = kept.add(3, {"--print-on", "15", "told", "--print", "up", "--open-fifo", "gate", "--print", "nan", "--exit", "4"});
  // A line that only its end makes whole; its child keeps the pipe open until the exit was seen.
  const ReplicaId at_last = kept.add(4, {});
  kept.launch().replicas[3].argv = {"/bin/sh", "-c", "sleep 600 & printf nan"};
  REQUIRE(::mkfifo((kept.root() / "gate").c_str(), 0600) == 0);
  kept.start();
  const ReplicaExit ended = kept.wait_exit(ends);
  CHECK(ended.code == 0);
  CHECK(ended.ended_for_line);
  CHECK(ended.cause == "ended for having printed 'loss=nan'; exit code 0");
  CHECK(ended.printed == std::vector<PrintedLine>{{1, "good day"}, {3, "loss=nan"}});
  const ReplicaExit failed = kept.wait_exit(fails);
  CHECK(failed.cause == "exit code 3");
  CHECK_FALSE(failed.ended_for_line);
  CHECK(failed.printed == std::vector<PrintedLine>{{1, "good bye"}});
  const ReplicaExit last = kept.wait_exit(at_last);
  CHECK(last.code == 0);
  CHECK(last.ended_for_line);
  CHECK(last.cause == "printed 'nan' at its end; exit code 0");
  // Who is ending for another reason ends for that one.
  kept.wait_output(already, "up");
  kept.stop(already, kTestPatienceMs);
  kept.wait_output(already, "told");
  { Fd gate(::open((kept.root() / "gate").c_str(), O_WRONLY)); }
  const ReplicaExit stopped = kept.wait_exit(already);
  CHECK(stopped.code == 4);
  CHECK_FALSE(stopped.ended_for_line);
  CHECK(stopped.printed == std::vector<PrintedLine>{{3, "nan"}});
}

TEST_CASE("ends by signals are named") {
  KeptLaunch kept;
  const ReplicaId crashed = kept.add(1, {"--raise", "11"});
  const ReplicaId killed = kept.add(2, {"--raise", "9"});
  kept.start();
  const ReplicaExit crash = kept.wait_exit(crashed);
  CHECK(crash.code == 139);
  CHECK(crash.signal == 11);
  CHECK(crash.cause == "killed by SIGSEGV (11)");
  const ReplicaExit kill = kept.wait_exit(killed);
  CHECK(kill.code == 137);
  CHECK(!kill.memory_kill);
  CHECK(kill.cause.find("not by dtrain") != std::string::npos);
}

TEST_CASE("a command that can't run has an exit that says why") {
  KeptLaunch kept;
  const ReplicaId missing = kept.add(1, {});
  kept.launch().replicas[0].argv = {"no-such-program"};
  const ReplicaId nowhere = kept.add(2, {});
  kept.launch().replicas[1].cwd = "/no/such/folder";
  kept.start();
  const ReplicaExit not_found = kept.wait_exit(missing);
  CHECK(not_found.code == 127);
  CHECK(not_found.cause.find("no-such-program: command not found") != std::string::npos);
  CHECK(kept.facts().starts.at(missing).error == "no-such-program: command not found");
  const ReplicaExit no_folder = kept.wait_exit(nowhere);
  CHECK(no_folder.code == 126);
  CHECK(no_folder.cause.find("/no/such/folder") != std::string::npos);
}

TEST_CASE("stop: TERM first, KILL after the grace") {
  for (const CgroupChoice choice : choices()) {
    CAPTURE(name_of(choice));
    KeptLaunch kept(choice);
    const ReplicaId polite = kept.add(1, {"--exit-on", "15", "7", "--print", "ready", "--hang"});
    const ReplicaId deaf = kept.add(2, {"--ignore", "15", "--print", "ready", "--hang"});
    const ReplicaId other = kept.add(3, {"--print", "ready", "--hang"});
    kept.start();
    for (const ReplicaId& id : {polite, deaf, other}) kept.wait_output(id, "ready");
    kept.stop(polite, 50'000);
    CHECK(kept.wait_exit(polite).cause == "exit code 7");
    kept.stop(deaf, 20);
    CHECK(kept.wait_exit(deaf).cause == "killed by SIGKILL (9)");
    CHECK(kept.survivors().size() == 1);  // the third was not touched
    kept.stop(other, 0);
    CHECK(kept.wait_exit(other).signal == SIGKILL);
    CHECK(kept.survivors().empty());
  }
}

TEST_CASE("a later stop can shorten the grace") {
  KeptLaunch kept;
  const ReplicaId id = kept.add(1, {"--ignore", "15", "--print", "ready", "--hang"});
  kept.start();
  kept.wait_output(id, "ready");
  kept.stop(id, 1'000'000);
  kept.stop(id, 0);
  CHECK(kept.wait_exit(id).signal == SIGKILL);
}

// How many timers of a process run by CLOCK_BOOTTIME.
int sleepless_timers(pid_t pid) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/fdinfo", pid))) {
    const std::string text = read_small_file(entry.path()).value_or("");
    count += text.find(fmt::format("clockid: {}\n", CLOCK_BOOTTIME)) != std::string::npos &&
             text.find("it_value: (0, 0)") == std::string::npos;
  }
  return count;
}

TEST_CASE("a grace goes on while the machine sleeps") {
  KeptLaunch kept;
  const ReplicaId id = kept.add(1, {"--ignore", "15", "--print", "ready", "--hang"});
  const ReplicaId other = kept.add(2, {"--print", "ready", "--hang"});
  kept.start();
  kept.wait_output(id, "ready");
  CHECK(sleepless_timers(kept.keeper_pid()) == 0);
  kept.stop(id, 1'000'000);
  kept.stop(other, 0);
  kept.wait_exit(other);
  CHECK(sleepless_timers(kept.keeper_pid()) == 1);
  kept.stop(id, 0);
  CHECK(kept.wait_exit(id).signal == SIGKILL);
}

// Ways to hide; each ends with a process that hangs.
const std::vector<std::pair<std::string, Steps>> kStrays = {
    {"child", {"--fork", "--ignore", "15", "--print", "hidden", "--hang", "--then"}},
    {"orphan", {"--orphan", "--print", "hidden", "--hang", "--then"}},
    {"orphan in its own session",
     {"--orphan", "--setsid", "--ignore", "15", "--print", "hidden", "--hang", "--then"}},
    {"orphan without environment",
     {"--orphan", "--setsid", "--clear-env", "--ignore", "15", "--print", "hidden", "--hang",
      "--then"}},
    {"orphan without environment and output",
     {"--orphan", "--setsid", "--clear-env", "--print", "hidden", "--close-output", "--hang",
      "--then"}},
    {"orphan that stopped itself",
     {"--orphan", "--setsid", "--print", "hidden", "--stop", "--hang", "--then"}},
};

TEST_CASE("stop leaves nothing of a tree alive, however it hid") {
  for (const CgroupChoice choice : choices()) {
    for (const auto& [name, stray] : kStrays) {
      CAPTURE(name_of(choice));
      CAPTURE(name);
      KeptLaunch kept(choice);
      Steps steps{"--ignore", "15"};  // before "hidden" is printed, and inherited
      steps.insert(steps.end(), stray.begin(), stray.end());
      steps.push_back("--hang");
      const ReplicaId id = kept.add(1, steps);
      kept.start();
      kept.wait_output(id, "hidden");
      CHECK(kept.survivors().size() >= 2);
      kept.stop(id, 10);
      CHECK(kept.wait_exit(id).signal == SIGKILL);
      CHECK(kept.survivors().empty());
      for (const std::string& group : kept.launch().replicas[0].cgroups) CHECK(goes(group));
    }
  }
}

TEST_CASE("what a replica leaves behind at its own exit is ended too") {
  for (const CgroupChoice choice : choices()) {
    for (const auto& [name, stray] : kStrays) {
      if (std::find(stray.begin(), stray.end(), "--ignore") != stray.end()) continue;
      CAPTURE(name_of(choice));
      CAPTURE(name);
      KeptLaunch kept(choice);
      Steps steps = stray;
      // The parent goes once the stray is there and says so.
      REQUIRE(::mkfifo((kept.root() / "gate").c_str(), 0600) == 0);
      steps.insert(steps.end(), {"--open-fifo", "gate", "--exit", "5"});
      const ReplicaId id = kept.add(1, steps);
      kept.start();
      kept.wait_output(id, "hidden");
      { Fd gate(::open((kept.root() / "gate").c_str(), O_WRONLY)); }
      CHECK(kept.wait_exit(id).cause == "exit code 5");
      CHECK(kept.survivors().empty());
    }
  }
}

TEST_CASE("two replicas of one launch end one by one, with their own strays") {
  for (const CgroupChoice choice : choices()) {
    CAPTURE(name_of(choice));
    KeptLaunch kept(choice);
    const Steps steps{"--orphan", "--setsid", "--print", "hidden", "--hang", "--then", "--hang"};
    const ReplicaId first = kept.add(1, steps);
    const ReplicaId second = kept.add(2, steps);
    kept.start();
    kept.wait_output(first, "hidden");
    kept.wait_output(second, "hidden");
    CHECK(kept.survivors().size() == 4);
    kept.stop(first, 1000);
    CHECK(kept.wait_exit(first).signal == SIGTERM);
    CHECK(kept.survivors().size() == 2);
    kept.stop(second, 1000);
    kept.wait_exit(second);
    CHECK(kept.survivors().empty());
  }
}

TEST_CASE("a replica without output lives on") {
  KeptLaunch kept;
  const ReplicaId id = kept.add(
      1, {"--print", "last words", "--close-output", "--open-fifo", "gate", "--exit", "4"});
  REQUIRE(::mkfifo((kept.root() / "gate").c_str(), 0600) == 0);
  kept.start();
  kept.wait_output(id, "last words");
  { Fd gate(::open((kept.root() / "gate").c_str(), O_WRONLY)); }
  CHECK(kept.wait_exit(id).code == 4);
}

TEST_CASE("all output arrives: a flood, one line without end, noise") {
  KeptLaunch kept;
  const ReplicaId flood = kept.add(1, {"--lines", "1000000"});
  const ReplicaId line = kept.add(2, {"--one-line", "50000000"});
  const ReplicaId noise = kept.add(3, {"--garbage", "3000000"});
  kept.start();
  CHECK(kept.wait_exit(flood).log_bytes == 100'000'000);
  const std::string lines = kept.output(flood);
  REQUIRE(lines.size() == 100'000'000);
  CHECK(lines.substr(99'999'900, 15) == "line 0000999999");
  CHECK(kept.wait_exit(line).log_bytes == 50'000'000);
  CHECK(kept.output(line) == std::string(49'999'999, 'y') + "\n");
  CHECK(kept.wait_exit(noise).log_bytes == 3'000'000);
  CHECK(kept.output(noise).size() == 3'000'000);
}

TEST_CASE("past its limit a spool drops its oldest part and says how much") {
  KeptLaunch kept;
  kept.launch().spool_limit_bytes = 2 * kSpoolSegmentBytes;
  const ReplicaId id = kept.add(1, {"--lines", "500000"});
  kept.start();
  CHECK(kept.wait_exit(id).log_bytes == 50'000'000);
  SpoolReader reader(kept.directory(), id, 0);
  auto first = reader.next();
  REQUIRE(first.ok());
  REQUIRE(first->has_value());
  const uint64_t dropped = (**first).dropped_bytes;
  CHECK(dropped > 30'000'000);
  CHECK(dropped < 50'000'000);
  CHECK(kept.output(id).size() ==
        50'000'000 - dropped + fmt::format("<dropped {}>", dropped).size());
}

TEST_CASE("acknowledged segments are removed") {
  KeptLaunch kept;
  const ReplicaId id = kept.add(1, {"--lines", "300000", "--hang"});
  kept.start();
  SpoolReader reader(kept.directory(), id, 0);
  kept.wait_until([&] {
    for (auto chunk = reader.next(); chunk.ok() && chunk->has_value(); chunk = reader.next()) {
    }
    return reader.offset() == 30'000'000;
  });
  CHECK(std::filesystem::exists(kept.directory().spool(id, 1)));
  kept.send(fmt::format("acked {} 30000000", to_string(id)));
  kept.stop(id, 0);
  kept.wait_exit(id);
  CHECK(!std::filesystem::exists(kept.directory().spool(id, 1)));
}

TEST_CASE("the runner's end changes nothing; the next one is told to look") {
  KeptLaunch kept;
  for (const char* gate : {"gate", "last"}) {
    REQUIRE(::mkfifo((kept.root() / gate).c_str(), 0600) == 0);
  }
  const ReplicaId id = kept.add(1, {"--print", "before", "--open-fifo", "gate", "--print", "after",
                                    "--open-fifo", "last"});
  kept.start();
  kept.wait_output(id, "before");
  kept.disconnect();
  { Fd gate(::open((kept.root() / "gate").c_str(), O_WRONLY)); }
  kept.connect();
  kept.wait_output(id, "after");
  { Fd gate(::open((kept.root() / "last").c_str(), O_WRONLY)); }
  CHECK(kept.wait_exit(id).code == 0);
  CHECK(kept.output(id) == "before\nafter\n");
  kept.send("bye");
  CHECK(kept.wait_keeper() == 0);
}

TEST_CASE("a lease that is not renewed ends the replicas") {
  KeptLaunch kept;
  kept.launch().lease_ms = 50;
  const ReplicaId id = kept.add(1, {"--print", "ready", "--hang"});
  kept.start();
  const ReplicaExit exit = kept.wait_exit(id);
  CHECK(exit.cause.find("lease expired") == 0);
  CHECK(kept.survivors().empty());
}

TEST_CASE("the end of a lease comes also where the keeper hangs in its files") {
  KeptLaunch kept;
  kept.launch().lease_ms = 300;
  const ReplicaId id = kept.add(1, {"--orphan", "--setsid", "--print", "ready", "--hang", "--then", "--hang"});
  // Opening it waits for somebody to read, as for a server that is away.
  const auto spool = kept.directory().spool(id, 1);
  REQUIRE(::mkfifo(spool.c_str(), 0600) == 0);
  kept.start();
  const int64_t begun_ms = boottime_ms();
  while (kept.survivors().empty()) REQUIRE(boottime_ms() < begun_ms + kTestPatienceMs);
  while (!kept.survivors().empty()) REQUIRE(boottime_ms() < begun_ms + kTestPatienceMs);
  CHECK(read_facts(kept.directory())->exits.empty());
  const Fd reader(::open(spool.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  const ReplicaExit exit = kept.wait_exit(id);
  CHECK(exit.signal == SIGKILL);
  CHECK(exit.cause.find("lease expired") == 0);
  CHECK(exit.cause.find("not by dtrain") == std::string::npos);
}

TEST_CASE("whoever sees the end of its lease too late has used up its grace") {
  KeptLaunch kept;
  kept.launch().lease_ms = 4'000;   // until it is stopped
  kept.launch().grace_ms = 200;
  const ReplicaId id = kept.add(1, {"--exit-on", "15", "7", "--print", "ready", "--hang"});
  kept.start();
  const int64_t started_ms = boottime_ms();
  kept.wait_output(id, "ready");
  REQUIRE(::kill(kept.keeper_pid(), SIGSTOP) == 0);   // as with a machine that sleeps
  // By now the daemon takes it for gone, and may have started another.
  const Fd gone(::timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC));
  const int64_t gone_ms = started_ms + kept.launch().lease_ms + kept.launch().grace_ms + 1;
  const itimerspec when{{}, {gone_ms / 1000, gone_ms % 1000 * 1'000'000}};
  REQUIRE(::timerfd_settime(gone.get(), TFD_TIMER_ABSTIME, &when, nullptr) == 0);
  REQUIRE(wait_readable(gone.get()));
  REQUIRE(::kill(kept.keeper_pid(), SIGCONT) == 0);
  const ReplicaExit exit = kept.wait_exit(id);
  CHECK(exit.cause.find("lease expired") == 0);
  CHECK(exit.signal == SIGKILL);
}

TEST_CASE("a lease counts from the runner's last word that was answered, not from what it says now") {
  KeptLaunch kept;
  kept.launch().lease_ms = boottime_ms();   // over soon when it counts from the machine's start
  const ReplicaId id = kept.add(1, {"--print", "ready", "--hang"});
  kept.keep();
  kept.send("start 200");
  kept.send("renew 201");
  CHECK(kept.wait_exit(id).cause.find("lease expired") == 0);
}

TEST_CASE("a start that arrives when its lease is over starts nothing") {
  KeptLaunch kept;
  kept.launch().lease_ms = 100;
  const ReplicaId id = kept.add(1, {"--print", "ready", "--hang"});
  kept.keep();
  kept.send(fmt::format("start {}", boottime_ms() - 100));
  CHECK(kept.wait_exit(id).cause.find("lease expired") == 0);
  CHECK(kept.output(id).empty());
}

TEST_CASE("a replica that can't be started for want of descriptors starts once there are some, and stops") {
#ifdef __SANITIZE_ADDRESS__
  return tests::say_skipped("the sanitizer looks at memory through a pipe, and there is none");
#endif
  KeptLaunch kept;
  const ReplicaId id = kept.add(1, {"--exit-on", "15", "7", "--print", "ready", "--hang"});
  const ReplicaId other = kept.add(2, {"--hang"});
  kept.listen();
  kept.keep();
  kept.stop(other, 0);
  kept.wait_exit(other);  // so the keeper has taken our connection
  rlimit before{};
  REQUIRE(::prlimit(kept.keeper_pid(), RLIMIT_NOFILE, nullptr, &before) == 0);
  const rlimit few{0, before.rlim_max};
  REQUIRE(::prlimit(kept.keeper_pid(), RLIMIT_NOFILE, &few, nullptr) == 0);
  kept.send_start();
  kept.wait_said("can't start yet");
  REQUIRE(::prlimit(kept.keeper_pid(), RLIMIT_NOFILE, &before, nullptr) == 0);
  kept.wait_output(id, "ready");
  kept.stop(id, 1000);
  CHECK(kept.wait_exit(id).cause == "exit code 7");
  CHECK(kept.output(id) == "ready\n");
}

TEST_CASE("a start that a full disk did not take is recorded once there is room, without a word of output") {
  KeptLaunch kept;
  const ReplicaId id = kept.add(1, {"--hang"});
  kept.listen();
  kept.keep();
  rlimit before{};
  REQUIRE(::prlimit(kept.keeper_pid(), RLIMIT_FSIZE, nullptr, &before) == 0);
  const rlimit full{0, before.rlim_max};
  REQUIRE(::prlimit(kept.keeper_pid(), RLIMIT_FSIZE, &full, nullptr) == 0);
  kept.send_start();
  kept.wait_said("start of 4.worker.1: write");
  CHECK(kept.facts().starts.empty());
  REQUIRE(::prlimit(kept.keeper_pid(), RLIMIT_FSIZE, &before, nullptr) == 0);
  kept.wait_until([&] { return kept.facts().starts.contains(id); });
}

TEST_CASE("TERM to a keeper ends its replicas first") {
  KeptLaunch kept;
  const ReplicaId id = kept.add(1, {"--exit-on", "15", "0", "--print", "ready", "--hang"});
  kept.start();
  kept.wait_output(id, "ready");
  ::kill(kept.keeper_pid(), SIGTERM);
  CHECK(kept.wait_keeper() == 0);
  CHECK(kept.facts().exits.at(id).cause == "the keeper got SIGTERM; exit code 0");
  CHECK(kept.survivors().empty());
}

TEST_CASE("without a runner a keeper ends once everything it knows is on the disk") {
  KeptLaunch kept;
  REQUIRE(::mkfifo((kept.root() / "gate").c_str(), 0600) == 0);
  const ReplicaId id = kept.add(1, {"--print", "ready", "--open-fifo", "gate", "--exit", "3"});
  kept.start();
  kept.wait_output(id, "ready");
  SUBCASE("the runner went first") {
    kept.disconnect();
    { Fd gate(::open((kept.root() / "gate").c_str(), O_WRONLY)); }
  }
  SUBCASE("the replica ended first") {
    { Fd gate(::open((kept.root() / "gate").c_str(), O_WRONLY)); }
    kept.wait_exit(id);
    kept.disconnect();
  }
  CHECK(kept.wait_keeper() == 0);
  CHECK(kept.facts().exits.at(id).code == 3);
  CHECK(kept.output(id) == "ready\n");
}

TEST_CASE("a keeper ends when its launch directory is removed and nothing runs") {
  KeptLaunch kept;
  const ReplicaId id = kept.add(1, {"--exit", "0"});
  kept.start();
  kept.wait_exit(id);
  kept.disconnect();
  std::filesystem::remove_all(kept.directory().path());
  CHECK(kept.wait_keeper() == 0);
}

TEST_CASE("a keeper ends what runs when its launch directory is removed") {
  KeptLaunch kept;
  const ReplicaId id = kept.add(1, {"--print", "runs", "--hang"});
  SUBCASE("while a runner is connected") {
    kept.start();
    kept.wait_output(id, "runs");
  }
  SUBCASE("and nobody is") {
    kept.start();
    kept.wait_output(id, "runs");
    kept.disconnect();
  }
  // As `rm -rf` of a home and the start of another daemon there may come right after each other.
  std::filesystem::remove_all(kept.directory().path());
  std::filesystem::create_directory(kept.directory().path());
  CHECK(kept.wait_keeper() == 0);
  CHECK(kept.survivors().empty());
}

TEST_CASE("a keeper goes on when its record alone is removed") {
  KeptLaunch kept;
  REQUIRE(::mkfifo((kept.root() / "gate").c_str(), 0600) == 0);
  const ReplicaId id = kept.add(1, {"--print", "runs", "--open-fifo", "gate", "--print", "goes on"});
  kept.start();
  kept.wait_output(id, "runs");
  std::filesystem::remove(kept.directory().record());
  // It has heard of it: with its runner gone it would end, were it over.
  { Fd gate(::open((kept.root() / "gate").c_str(), O_WRONLY)); }
  kept.wait_output(id, "goes on");
}

TEST_CASE("when a keeper is killed, its trees are found and ended from outside") {
  for (const CgroupChoice choice : choices()) {
    for (const auto& [name, stray] : kStrays) {
      // Without a cgroup nothing tells such a stray from a stranger once its keeper is gone.
      if (name == "orphan without environment and output" && choice == CgroupChoice::None) continue;
      CAPTURE(name_of(choice));
      CAPTURE(name);
      KeptLaunch kept(choice);
      Steps steps = stray;
      steps.insert(steps.end(), {"--ignore", "15", "--hang"});
      const ReplicaId id = kept.add(1, steps);
      kept.start();
      kept.wait_output(id, "hidden");
      kept.kill_keeper();
      const Result<TreeMarks> marks = marks_of_launch(kept.directory());
      REQUIRE(marks.ok());
      CHECK(kill_tree(*marks, 20'000).value().empty());
      CHECK(kept.survivors().empty());
      CHECK(remove_launch_cgroups(kept.launch()).ok());
    }
  }
}

TEST_CASE("a keeper without a record says so") {
  KeptLaunch kept;
  SpawnedKeeper keeper = spawn_keeper(kept.directory());
  REQUIRE(wait_readable(keeper.process.pidfd.get()));
  CHECK(WEXITSTATUS(try_reap(keeper.process).value_or(0)) == 1);
  char word[1024];
  const ssize_t size = ::read(keeper.ready.get(), word, sizeof word);
  REQUIRE(size > 0);
  CHECK(std::string_view(word, static_cast<size_t>(size)).ends_with("record is not there"));
}

}  // namespace
}  // namespace dtrain::runner
