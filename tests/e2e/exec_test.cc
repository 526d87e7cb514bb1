// dtrain exec: a command or a shell beside what trains, as a user has it.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "schema/fd.h"
#include "tests/support/cluster.h"
#include "tests/support/facts.h"
#include "tests/support/screenful.h"
#include "tests/support/skipped.h"
#include "tests/support/tiny_image.h"

using namespace dtrain::tests;

namespace {

// An experiment that runs until its gate is opened: 1.master, 1.worker.1 and 1.worker.2.
struct GatedGang {
  explicit GatedGang(Cluster& cluster, const std::string& more = "") : gate(cluster.folder() / "gate") {
    REQUIRE(mkfifo(gate.c_str(), 0600) == 0);
    project = cluster.project("project",
                              {{"dtrain.yml", fmt::format("project: p\ntrain:\n  framework: tensorflow\n  env: {{MARK: of the replica}}\n"
                                                          "  resources: {{cpus: 0.1, mem: 32}}\n  tensorflow: {{distributed: {{worker: 3}}}}\n"
                                                          "  python: /usr/bin/python3\n{}  run: cd sub; echo ready; cat {}\n",
                                                          more, gate.string())},
                               {"sub/there", "a file of the project\n"}});
    CHECK(cluster.run({"train", "-d"}, project).code == 0);
    for (const char* each : {"1.master", "1.worker.1", "1.worker.2"}) cluster.start({"logs", "-f", each}, project)->wait_for("ready");
  }
  void open() const { write_file(gate, "on\n"); }

  fs::path gate;
  fs::path project;
};

// In a shell, $DTRAIN being the executable: for what a test sends it, and where its output goes.
Output in_shell(Cluster& cluster, const std::string& line, const fs::path& directory) {
  auto env = cluster.command({}).env;
  env["DTRAIN"] = BIN_DIR "/dtrain";
  return run({{"/bin/sh", "-c", line}, directory, env, {}});
}

// The process that said "at <pid>", while it is sure to be there.
struct Named {
  explicit Named(const Process& process)
      : fd(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(std::stol(process.out().substr(3))), 0))) {
    REQUIRE(fd);
  }
  bool ends() const {
    pollfd wait{fd.get(), POLLIN, 0};
    return ::poll(&wait, 1, 60'000) == 1;
  }
  dtrain::Fd fd;
};

}  // namespace

TEST_CASE("a command beside a replica has its environment and directory, and its streams and exit code are the command's") {
  Cluster cluster;
  const GatedGang gang(cluster);
  const Output seen = cluster.run({"exec", "1.worker.2", "--", "sh", "-c", "echo $DTRAIN_REPLICA $MARK; cat there; echo apart >&2; exit 7"}, gang.project);
  CHECK_MESSAGE(seen.code == 7, seen.all());
  CHECK(seen.out == "1.worker.2 of the replica\na file of the project\n");
  CHECK(seen.err == "apart\n");

  const Output by_experiment = cluster.run({"exec", "--", "printenv", "DTRAIN_REPLICA"}, gang.project);
  CHECK(by_experiment.out == "1.master\n");
  CHECK_MESSAGE(says(by_experiment, "2 other replicas run, too"), by_experiment.all());

  CHECK(cluster.run({"exec", "1", "--", "sh", "-c", "kill -9 $$"}, gang.project).code == 137);
  const Output unknown = cluster.run({"exec", "1", "--", "no-such-program"}, gang.project);
  CHECK(unknown.code == 127);
  CHECK_MESSAGE(says(unknown, "no-such-program: command not found"), unknown.all());
  CHECK(cluster.run({"exec", "1", "--", "./there"}, gang.project).code == 126);

  gang.open();
  CHECK(cluster.run({"wait", "1"}).code == 0);
  const Output over = cluster.run({"exec", "1", "--", "true"}, gang.project);
  CHECK(over.code == 2);
  CHECK_MESSAGE(says(over, "1 is over: FINISHED"), over.all());
}

TEST_CASE("what is wrong about an exec is said before anything runs") {
  Cluster cluster;
  const GatedGang gang(cluster);
  CHECK(says(cluster.run({"exec", "1.ps.1"}, gang.project), "experiment 1 has no 1.ps.1; it has master, worker.1, worker.2"));
  CHECK(says(cluster.run({"exec", "7"}, gang.project), "7"));
  CHECK(says(cluster.run({"exec", "nvidia-smi"}, gang.project), "dtrain exec -- nvidia-smi"));
  CHECK(says(cluster.run({"exec", "1", "ls", "-l"}, gang.project), "dtrain exec 1 -- ls -l"));
  CHECK(says(cluster.run({"exec", "-t", "-T", "1"}, gang.project), "opposite"));
  CHECK(says(cluster.run({"exec", "1", "--", "echo", std::string(100'000, 'x')}, gang.project), "longer than"));
  gang.open();
}

TEST_CASE("a stream of many windows goes in and comes out whole, however slowly it is read") {
  Cluster cluster;
  const GatedGang gang(cluster);
  const fs::path input = cluster.folder() / "input";
  REQUIRE(run({{"sh", "-c", "head -c 20000000 /dev/urandom > " + input.string()}, {}, {}, {}}).code == 0);
  const Output copied = in_shell(cluster, fmt::format("$DTRAIN exec 1.worker.1 -- cat < {0} | cmp - {0}", input.string()), gang.project);
  CHECK_MESSAGE(copied.code == 0, copied.all());
  const Output cut = in_shell(cluster, "{ $DTRAIN exec 1.worker.1 -- yes; echo $? >&2; } | head -n 1", gang.project);
  CHECK(cut.out == "y\n");
  CHECK_MESSAGE(cut.err == "141\n", cut.err);
  gang.open();
}

TEST_CASE("a stream that is closed, or full, is nobody else's, and costs no exit code") {
  Cluster cluster;
  const GatedGang gang(cluster);
  const Output no_input = in_shell(cluster, "$DTRAIN exec 1.worker.1 -- cat <&-; echo $?", gang.project);
  CHECK_MESSAGE(no_input.out == "0\n", no_input.all());
  const Output no_errors = in_shell(cluster, "$DTRAIN exec 1.worker.1 -- sh -c 'echo bad >&2; echo good; exit 5' 2>/dev/full; echo $?", gang.project);
  CHECK_MESSAGE(no_errors.out == "good\n5\n", no_errors.all());
  const Output full = in_shell(cluster, "$DTRAIN exec 1.worker.1 -- echo good >/dev/full; echo $?", gang.project);
  CHECK_MESSAGE(full.out == "1\n", full.all());
  const Output half = in_shell(cluster, "printf half | $DTRAIN exec -t 1.worker.1 -- wc -c", gang.project);
  CHECK_MESSAGE(says(half, "4"), half.all());
  gang.open();
}

TEST_CASE("whoever does not read what comes is not deaf to signals, and TERM twice ends what ignores it") {
  Cluster cluster;
  const GatedGang gang(cluster);
  {
    const fs::path fifo = cluster.folder() / "fifo";
    REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
    auto command = cluster.command({}).env;
    const dtrain::Fd reader(::open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    command["DTRAIN"] = BIN_DIR "/dtrain";
    Process process({{"/bin/sh", "-c", "exec $DTRAIN exec 1.worker.1 -- yes > " + fifo.string()}, gang.project, command, {}});
    // Full: it waits for its reader.
    pollfd full{reader.get(), POLLIN, 0};
    REQUIRE(::poll(&full, 1, 60'000) == 1);
    process.signal(SIGTERM);
    process.signal(SIGHUP);
    CHECK(process.wait().code == 128 + SIGHUP);
  }
  auto deaf = cluster.start({"exec", "1.worker.1", "--", "sh", "-c", "trap 'echo no' TERM; trap '' HUP; echo at $$; while :; do sleep 1000 & wait; done"},
                            gang.project);
  deaf->wait_for("at ");
  deaf->signal(SIGTERM);
  deaf->wait_for("no\n");   // two at once are one
  deaf->signal(SIGTERM);
  CHECK(deaf->wait().code == 128 + SIGTERM);
  gang.open();
}

TEST_CASE("a terminal without one there is still what somebody types at") {
  Cluster cluster;
  const GatedGang gang(cluster);
  Screenful screen(cluster.command({"exec", "-T", "1.worker.1", "--", "sh", "-c", "read line; echo got $line; test -t 0 || echo pipes"}, gang.project));
  screen.type("words\n");
  const std::string seen = screen.read_until("pipes");
  CHECK_MESSAGE(seen.find("got words") != std::string::npos, seen);
  gang.open();
}

TEST_CASE("a shell on a terminal has its size, its keys and its colours") {
  Cluster cluster;
  const GatedGang gang(cluster);
  Screenful screen(cluster.command({"exec", "1.worker.1"}, gang.project));
  // What a shell reads before it has come up may be echoed twice: its output is told apart by what the line computes.
  screen.type("stty size; tty | cut -c1-9; echo $TERM-$((40+2)); echo $DTRAIN_REPLICA-$$\n");
  const std::string seen = screen.read_until("1.worker.1-");
  CHECK_MESSAGE(seen.find("xterm-42") != std::string::npos, seen);
  CHECK_MESSAGE(seen.find("/dev/pts/") != std::string::npos, seen);
  screen.type("sh -c 'echo run-$((3+4)); exec sleep 1000'\n");
  REQUIRE(screen.read_until("run-7").find("run-7") != std::string::npos);
  screen.type("\x03");
  screen.type("echo after-$((1+1))\n");
  CHECK(screen.read_until("after-2").find("after-2") != std::string::npos);
  screen.type("exit 5\n");
  const int status = screen.changed();
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 5);
  gang.open();
}

TEST_CASE("whoever goes first takes the other along: the client, the replica, the runner") {
  Cluster cluster;
  const GatedGang gang(cluster);
  const auto begin = [&] {
    auto process = cluster.start({"exec", "1.worker.1", "--", "sh", "-c", "echo at $$; exec sleep 1000"}, gang.project);
    process->wait_for("at ");
    REQUIRE_MESSAGE(process->out().starts_with("at "), process->err());
    return process;
  };
  {
    auto process = begin();
    const Named command(*process);
    process->signal(SIGKILL);
    process->wait();
    CHECK(command.ends());
  }
  {
    auto process = begin();
    process->signal(SIGINT);   // the command's to take
    CHECK(process->wait().code == 130);
  }
  {
    auto process = begin();
    const Named command(*process);
    const auto runners = cluster.processes("runner run");
    REQUIRE(runners.size() == 1);
    REQUIRE(::kill(runners.front(), SIGKILL) == 0);
    const Output end = process->wait();
    CHECK(end.code == 255);
    CHECK_MESSAGE(says(end, "has broken off"), end.all());
    CHECK(command.ends());
    CHECK(facts(cluster.run({"status", "1", "--json"}))["state"] == "RUNNING");
    CHECK(cluster.run({"train", "--", "true"}, gang.project).code == 0);   // the next runner is there
  }
  auto process = begin();
  const Named command(*process);
  gang.open();
  const Output end = process->wait();
  CHECK_MESSAGE(says(end, "1.worker.1 has ended, and the command with it"), end.all());
  CHECK(cluster.run({"wait", "1"}).code == 0);
  CHECK(command.ends());
}

TEST_CASE("an open shell does not hold up the end of what it looks at") {
  Cluster cluster;
  const GatedGang gang(cluster);
  Screenful screen(cluster.command({"exec", "1.worker.1"}, gang.project));
  screen.type("echo here-$((1+1))\n");
  REQUIRE(screen.read_until("here-2").find("here-2") != std::string::npos);
  gang.open();
  CHECK(cluster.run({"wait", "1"}).code == 0);
  CHECK(screen.read_until("has ended").find("1.worker.1 has ended") != std::string::npos);
  const Json status = facts(cluster.run({"status", "1", "--json"}));
  CHECK(with_id(status["replicas"], "1.worker.1")["exit_code"] == 0);
}

TEST_CASE("a command beside a replica in an image sees the image, and what the replica wrote there") {
  if (const std::string why = tiny_image_unavailable(); !why.empty()) return say_skipped(why);
  for (const bool as_root : {true, false}) {
    CAPTURE(as_root);
    if (!as_root && ::geteuid() != 0) continue;
    Cluster cluster;
    if (!as_root) cluster.drop_root();
    const fs::path files = cluster.folder() / "image";
    make_tiny_image(files);
    const fs::path gate = cluster.folder() / "gate";
    REQUIRE(mkfifo(gate.c_str(), 0666) == 0);
    ::chmod(gate.c_str(), 0666);
    const fs::path project = cluster.project(
        "project", {{"dtrain.yml", fmt::format("project: p\ntrain:\n  resources: {{cpus: 0.1, mem: 32}}\n  image: {}\n  mounts: [{}]\n"
                                               "  run: echo written > /tmp/mine; echo ready; cat {}\n",
                                               files.string(), gate.string(), gate.string())}});
    const Output submitted = cluster.run({"train", "-d"}, project);
    REQUIRE_MESSAGE(submitted.code == 0, submitted.all());
    cluster.start({"logs", "-f", "1"}, project)->wait_for("ready");
    const Output seen = cluster.run({"exec", "1", "--", "cat", "/tmp/mine", "/etc/passwd"}, project);
    CHECK_MESSAGE(seen.code == 0, seen.all());
    CHECK(seen.out == "written\nroot:x:0:0::/root:/bin/sh\n");
    const Output id = cluster.run({"exec", "1", "--", "id", "-u"}, project);
    CHECK(id.out == "0\n");
    Screenful screen(cluster.command({"exec", "1"}, project));
    screen.type("ls /bin/busybox; echo in-$((1+1))\n");
    CHECK(screen.read_until("in-2").find("/bin/busybox") != std::string::npos);
    write_file(gate, "on\n");
    CHECK(cluster.run({"wait", "1"}).code == 0);
  }
}
