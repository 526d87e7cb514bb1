#include "runner/exec_session.h"

#include <chrono>
#include <deque>

#include "runner/exec_wire.h"
#include "schema/exec_limits.h"
#include "tests/integration/runner/kept_launch.h"
#include "tests/integration/runner/recording_peer.h"
#include "tests/support/skipped.h"

namespace dtrain::runner {
namespace {

struct ExecScene : RecordedSession {
  explicit ExecScene(CgroupChoice choice = CgroupChoice::Best, bool with_another = false) : kept(choice) {
    std::signal(SIGPIPE, SIG_IGN);   // as the runner does
    id = kept.add(1, {"--print", "up", "--hang"});
    if (with_another) kept.add(2, {"--hang"});
    kept.start();
    kept.wait_output(id, "up");
  }
  void begin(const std::vector<std::string>& argv, bool on_terminal = false) {
    pb::ExecStart start;
    for (const std::string& word : argv) start.add_argv(word);
    if (on_terminal) {
      start.mutable_terminal()->set_rows(33);
      start.mutable_terminal()->set_columns(99);
      start.set_terminal_kind("vt100");
    }
    session = std::make_shared<ExecSession>(loop, peer, [this] { over = true; });
    session->start(kept.launch(), to_string(id), start);
  }
  void until_over() {
    until([this] { return over; });
  }

  KeptLaunch kept;
  ReplicaId id;
  std::shared_ptr<ExecSession> session;
};

TEST_CASE("output waits in its pipe until what was sent is taken") {
  ExecScene scene;
  scene.begin({"head", "-c", "3000000", "/dev/zero"});
  scene.until([&] { return scene.peer->output.size() >= kExecWindowBytes; });
  CHECK(scene.peer->output.size() < kExecWindowBytes + kExecPartBytes);
  const size_t there = scene.peer->output.size();
  (void)scene.loop.poll();   // and nothing more comes of what is ready
  CHECK(scene.peer->output.size() == there);
  uint64_t taken = 0;
  while (!scene.over) {
    if (scene.peer->output.size() > taken) {
      const uint64_t more = scene.peer->output.size() - taken;
      taken += more;
      scene.take(more);
    } else {
      REQUIRE(scene.loop.run_one_for(std::chrono::seconds(30)) == 1);
    }
  }
  CHECK(scene.peer->output.size() == 3'000'000);
  CHECK(scene.peer->ended->code() == 0);
}

TEST_CASE("the end of a command is told after all that it wrote, though more than a window of it") {
  ExecScene scene;
  // Its pipe takes the rest, and it ends before that is taken.
  scene.begin({"sh", "-c", fmt::format("head -c {} /dev/zero; echo last >&2", kExecWindowBytes + 1000)});
  scene.until([&] { return scene.peer->output.size() >= kExecWindowBytes; });
  CHECK_FALSE(scene.peer->ended);
  scene.take(2 * kExecWindowBytes);
  scene.until_over();
  CHECK(scene.peer->output.size() == kExecWindowBytes + 1000);
  CHECK(scene.peer->errors == "last\n");
  CHECK(scene.peer->ended->code() == 0);
  CHECK(scene.peer->done);
}

TEST_CASE("what a command leaves running holds its output open, and not its end up") {
  ExecScene scene;
  scene.begin({"sh", "-c", "yes > /dev/null & echo done; exec sh -c 'yes & exit 4'"});
  while (!scene.over) {
    scene.take(kExecWindowBytes);
    REQUIRE(scene.loop.run_one_for(std::chrono::seconds(30)) == 1);
  }
  CHECK(scene.peer->output.starts_with("done\n"));
  CHECK(scene.peer->ended->code() == 4);
}

TEST_CASE("input is answered for as the command takes it, and its end reaches the command") {
  ExecScene scene;
  scene.begin({"sh", "-c", "read line; echo got $line; cat | wc -c"});
  scene.type("hello\n");
  scene.until([&] { return scene.peer->output == "got hello\n"; });
  CHECK(scene.peer->taken == 6);
  scene.type(std::string(200'000, 'x'));
  scene.end_input();
  scene.until_over();
  CHECK(scene.peer->taken == 200'006);
  CHECK(scene.peer->output == "got hello\n200000\n");
}

TEST_CASE("input that the command does not read is answered for, so that nobody waits") {
  ExecScene scene;
  scene.begin({"sh", "-c", "exec <&-; echo closed; sleep 1000"});
  scene.until([&] { return scene.peer->output == "closed\n"; });
  scene.type(std::string(100'000, 'x'));
  scene.until([&] { return scene.peer->taken == 100'000; });
  scene.peer->on_closed();
  CHECK(scene.over);
}

TEST_CASE("whoever keeps no measure is left") {
  ExecScene scene;
  scene.begin({"sleep", "1000"});
  scene.until([&] { return scene.peer->started; });
  for (size_t sent = 0; !scene.over && sent <= 3 * kExecWindowBytes; sent += kExecPartBytes) scene.type(std::string(kExecPartBytes, 'x'));
  CHECK(scene.over);
}

TEST_CASE("a terminal is the command's own: its size, its kind, Ctrl-C, and its end of input") {
  ExecScene scene;
  scene.begin({"sh", "-c", "stty size; echo $TERM; trap 'echo caught; exit 9' INT; test -t 0 && echo is; while :; do read line; done"}, true);
  scene.until([&] { return scene.peer->output.find("is\r\n") != std::string::npos; });
  CHECK(scene.peer->output.find("33 99\r\nvt100\r\n") != std::string::npos);
  scene.type("\x03");
  scene.until_over();
  CHECK_MESSAGE(scene.peer->output.find("caught\r\n") != std::string::npos, scene.peer->output);
  CHECK(scene.peer->ended->code() == 9);

  ExecScene other;
  other.begin({"sh", "-c", "trap 'stty size' WINCH; echo up; while ! read line; do :; done; cat; echo end"}, true);
  other.until([&] { return other.peer->output.find("up") != std::string::npos; });
  pb::ExecInput resized;
  resized.mutable_resized()->set_rows(11);
  resized.mutable_resized()->set_columns(222);
  other.say(resized);
  other.type("go on\n");
  other.until([&] { return other.peer->output.find("11 222") != std::string::npos; });
  other.end_input();
  other.until_over();
  CHECK(other.peer->output.find("end\r\n") != std::string::npos);
  CHECK(other.peer->ended->code() == 0);
}

TEST_CASE("a replica's end takes every command beside it along, whatever that ignores, with and without cgroups") {
  for (const CgroupChoice choice : {CgroupChoice::Best, CgroupChoice::None}) {
    CAPTURE(static_cast<int>(choice));
    ExecScene scene(choice);
    // In a session of its own, without a mark in its environment, and deaf.
    scene.begin({"sh", "-c", "trap '' HUP TERM; setsid env -i " + (scene.kept.root() / "trainer").string() + " --hang & echo $!; sleep 1000"});
    scene.until([&] { return !scene.peer->output.empty(); });
    scene.kept.stop(scene.id, 0);
    scene.until_over();
    CHECK(scene.peer->ended->with_replica());
    CHECK(scene.kept.wait_exit(scene.id).signal == SIGKILL);
    CHECK(scene.kept.survivors().empty());
  }
}

TEST_CASE("a command that left nothing to be known by ends with its replica, while another of the launch goes on") {
  ExecScene scene(CgroupChoice::None, true);
  scene.begin({"sh", "-c", "trap '' HUP TERM; echo $$; exec env -i " + (scene.kept.root() / "trainer").string() + " --ignore 15 --hang"});
  scene.until([&] { return !scene.peer->output.empty(); });
  scene.kept.stop(scene.id, 0);
  scene.until_over();
  CHECK(scene.kept.wait_exit(scene.id).signal == SIGKILL);
  CHECK(scene.kept.survivors().size() == 1);   // the other's
}

TEST_CASE("a command that can't begin holds up neither its keeper nor the end of its replica") {
  ExecScene scene;
  const auto& groups = scene.kept.launch().replicas.front().cgroups;
  const std::string freezer = groups.empty() ? "" : groups.front() + "/cgroup.freeze";
  if (freezer.empty() || !write_switch(freezer, "1").ok()) return tests::say_skipped("no group that can be frozen");
  scene.begin({"true"});
  while (cgroup_members(groups).size() < 2) (void)scene.loop.poll();   // it is there, and goes no further
  scene.kept.stop(scene.id, 0);
  CHECK(scene.kept.wait_exit(scene.id).signal == SIGKILL);
  scene.until_over();
  REQUIRE(scene.peer->ended);
  CHECK(scene.peer->ended->with_replica());
}

TEST_CASE("who does not know the launch's key has nothing run") {
  ExecScene scene;
  scene.kept.launch().key = std::string(32, '0');
  scene.begin({"true"});
  scene.until_over();
  CHECK(scene.peer->refused.find("makes no sense") != std::string::npos);
}

TEST_CASE("a program that is not there, or may not be run, is told of by its own name") {
  const auto end_of = [](const std::string& name) {
    ExecScene scene;
    scene.begin({name}, true);
    scene.until_over();
    REQUIRE(scene.peer->ended);
    return std::pair(scene.peer->ended->code(), scene.peer->ended->cause());
  };
  CHECK(end_of("no-such-program") == std::pair(127, std::string("no-such-program: command not found")));
  CHECK(end_of("/etc/passwd") == std::pair(126, std::string("/etc/passwd: Permission denied")));
  CHECK(end_of("\xff\xfe").first == 127);
}

TEST_CASE("the end of a terminal's input is one also after half a line") {
  ExecScene scene;
  scene.begin({"sh", "-c", "stty -echo; echo up; cat"}, true);
  scene.until([&] { return scene.peer->output.find("up") != std::string::npos; });
  scene.type("half");
  scene.end_input();
  scene.until_over();
  CHECK_MESSAGE(scene.peer->output == "up\r\nhalf", scene.peer->output);
}

TEST_CASE("what was said before a connection was reset is heard") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  Fd ours(ends[0]);
  {
    const Fd theirs(ends[1]);
    REQUIRE(send_packet(ours.get(), "never read").ok());
    REQUIRE(send_packet(theirs.get(), "the last word").ok());
  }
  auto packet = receive_packet(ours.get());
  REQUIRE(packet.ok());
  CHECK((*packet)->bytes == "the last word");
  packet = receive_packet(ours.get());
  REQUIRE(packet.ok());
  CHECK((*packet)->bytes.empty());
}

TEST_CASE("a replica that has ended, or is of nobody, has no command beside it") {
  ExecScene scene;
  scene.kept.stop(scene.id, 0);
  scene.kept.wait_exit(scene.id);
  scene.begin({"true"});
  scene.until_over();
  CHECK_FALSE(scene.peer->refused.empty());
  CHECK_FALSE(scene.peer->started);
}

TEST_CASE("a peer that goes ends the command, also one that is deaf to it") {
  ExecScene scene;
  scene.begin({"sh", "-c", "trap '' HUP; echo $$; while :; do sleep 1000; done"});
  scene.until([&] { return !scene.peer->output.empty(); });
  const auto pid = static_cast<pid_t>(std::stol(scene.peer->output));
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  REQUIRE(process);
  scene.peer->on_closed();
  CHECK(scene.over);
  CHECK(wait_readable(process.get()));
  CHECK(scene.kept.facts().exits.empty());
}

}  // namespace
}  // namespace dtrain::runner
