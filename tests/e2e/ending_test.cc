// How experiments end, and what `train` returns for it.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"
#include "tests/support/screenful.h"

using namespace dtrain::tests;

namespace {

// A gang of master, two workers and a ps, all doing `run`.
std::string gang(const std::string& run) {
  return R"(project: gang
train:
  framework: tensorflow
  resources: {cpus: 0.2, mem: 32}
  stop-grace: 5s
  tensorflow:
    distributed: {worker: 3, ps: 1}
  run: )" +
         run + "\n";
}

std::string single(const std::string& run) {
  return "project: single\ntrain:\n  resources: {cpus: 0.2, mem: 32}\n  run: " + run + "\n";
}

}  // namespace

TEST_CASE("a worker that fails ends the gang; its own words are shown, the rest is folded") {
  Cluster cluster;
  fs::path project = cluster.project(gang(
      "case $DTRAIN_REPLICA in *worker.2) echo the cause; exit 3;; *) exec sleep 1000;; esac"));
  Output train = cluster.run({"train"}, project);
  CHECK_MESSAGE(train.code == 3, train.all());
  CHECK(says(train, "the cause"));
  CHECK_MESSAGE(says(train, "+3 ended because of it"), train.all());

  Json shown = facts(cluster.run({"status", "1", "--json"}));
  CHECK(shown["state"] == "FAILED");
  CHECK(with_id(shown["replicas"], "1.worker.2")["state"] == "FAILED");
  CHECK(with_id(shown["replicas"], "1.worker.2")["exit_code"] == 3);
  CHECK(with_id(shown["replicas"], "1.master")["state"] == "KILLED");
  CHECK(with_id(shown["replicas"], "1.ps.1")["state"] == "FINISHED");
  CHECK(shown["log_lines"] == Json({"the cause"}));
  const Output status = cluster.run({"status", "1"}, project);
  CHECK_MESSAGE(says(status, "Last Line:    the cause\nLog:          dtrain logs 1.worker.2 --tail 50\n"), status.out);

  Output why = cluster.run({"why", "1"});
  CHECK(why.code == 0);
  CHECK_MESSAGE(says(why, "1.worker.2"), why.out);
  CHECK_MESSAGE(says(why, "Last lines of 1.worker.2:\n  | the cause\n"), why.out);
  CHECK(facts(cluster.run({"why", "1", "--json"}))["log_lines"] == Json({"the cause"}));
  CHECK(cluster.run({"wait", "1"}).code == 3);
}

TEST_CASE("the master's end is the experiment's end, with others still at work") {
  Cluster cluster;
  // The workers obey TERM only; finish-grace 0 asks for it at once.
  fs::path project =
      cluster.project(gang("case $DTRAIN_REPLICA in *master) exit 0;; *) exec sleep 1000;; esac\n"
                           "  finish-grace: 0"));
  Output train = cluster.run({"train"}, project);
  CHECK_MESSAGE(train.code == 0, train.all());
  Json shown = facts(cluster.run({"status", "1", "--json"}));
  for (const char* id : {"1.master", "1.worker.1", "1.worker.2", "1.ps.1"}) {
    CHECK(with_id(shown["replicas"], id)["state"] == "FINISHED");
  }
}

TEST_CASE("exit codes of train: signals, a missing program, a missing file") {
  Cluster cluster;
  fs::path project = cluster.project(single("kill -SEGV $$"));
  Output train = cluster.run({"train"}, project);
  CHECK(train.code == 128 + SIGSEGV);
  CHECK_MESSAGE(says(train, "SIGSEGV"), train.all());

  write_file(project / "dtrain.yml", single("no-such-program --with words"));
  train = cluster.run({"train"}, project);
  CHECK(train.code == 127);
  CHECK_MESSAGE(says(train, "no-such-program"), train.all());
  CHECK_MESSAGE(train.err.find("  hint: no such command was found: PATH is that of") != std::string::npos, train.all());
  CHECK(says(cluster.run({"status", "2"}), "Hint:         no such command was found: PATH is that of"));

  write_file(project / "notes.txt", "not a program");
  write_file(project / "dtrain.yml", single("./notes.txt"));
  CHECK(cluster.run({"train"}, project).code == 126);
}

TEST_CASE("kill ends everything, tells once more that it is over, and refuses single replicas") {
  Cluster cluster;
  fs::path project = cluster.project(gang("echo at work; exec sleep 1000"));
  auto train = cluster.start({"train"}, project);
  train->wait_for("at work");

  Output one = cluster.run({"kill", "1.worker.1"});
  CHECK(one.code == 2);
  CHECK_MESSAGE(says(one, "dtrain kill 1"), one.all());

  CHECK(cluster.run({"kill", "1"}).code == 0);
  Output end = train->wait();
  CHECK_MESSAGE(end.code == 130, end.all());
  Json shown = facts(cluster.run({"status", "1", "--json"}));
  CHECK(shown["state"] == "KILLED");

  Output again = cluster.run({"kill", "1"});
  CHECK(again.code == 0);
  CHECK_MESSAGE(says(again, "KILLED"), again.all());
  CHECK(facts(cluster.run({"kill", "1", "--json"}))["killed"][0]["already_over"] == true);
  CHECK(cluster.run({"wait", "1"}).code == 130);
}

TEST_CASE("wait --timeout says what is not over by then") {
  Cluster cluster;
  const fs::path project = cluster.project("project: p\ntrain: {resources: {cpus: 0.1, mem: 32}, run: \"echo up; sleep 600\"}\n");
  CHECK(cluster.run({"train", "--", "sh", "-c", "exit 3"}, project).code == 3);
  CHECK(cluster.run({"train", "-d"}, project).code == 0);
  cluster.start({"logs", "-f", "2"}, project)->wait_for("up");
  for (const char* time : {"0s", "20ms"}) {
    const Output late = cluster.run({"wait", "--timeout", time, "2", "1"});
    CHECK(late.code == 124);
    CHECK(late.out == "1 FAILED\n");
    CHECK(late.err == fmt::format("dtrain: not over after {}: 2 (RUNNING)\n", time));
  }
  CHECK(cluster.run({"wait", "--timeout", "1h", "1"}).code == 3);
  const Output json = cluster.run({"wait", "--timeout", "0s", "--json", "2"});
  CHECK(json.code == 124);
  CHECK_MESSAGE(json.err.find("\"message\":\"not over after 0s: 2 (RUNNING)\"") != std::string::npos, json.all());
  const Output refused = cluster.run({"wait", "--timeout", "soon", "2"});
  CHECK(refused.code == 2);
  CHECK_MESSAGE(says(refused, "--timeout 'soon': expected a duration such as 5m or 1h30m"), refused.all());
  CHECK(cluster.run({"kill", "2", "--force"}).code == 0);
}

TEST_CASE("ranges of IDs are those that are there") {
  Cluster cluster;
  const fs::path project = cluster.project("project: p\ntrain: {resources: {cpus: 0.1, mem: 32}, run: sleep 600, parameters: {a: [1, 2, 3]}}\n");
  const fs::path other = cluster.project("other", {{"dtrain.yml", single("'true'")}});
  CHECK(cluster.run({"train"}, other).code == 0);
  CHECK(cluster.run({"train"}, other).code == 0);
  CHECK(cluster.run({"train", "-d"}, project).code == 0);
  CHECK(cluster.run({"prune", "1", "--yes"}).code == 0);
  const Output none = cluster.run({"kill", "4-9"});
  CHECK(none.code == 2);
  CHECK_MESSAGE(says(none, "there is nothing from 4 to 9"), none.all());
  CHECK(cluster.run({"kill", "3.1-3.9", "--force"}).code == 0);
  CHECK(cluster.run({"wait", "3.1-3.2", "3.3"}).out == "3.1 KILLED\n3.2 KILLED\n3.3 KILLED\n");
  CHECK(cluster.run({"wait", "1-9"}).out == "2 FINISHED\n3 KILLED\n");
  CHECK(cluster.run({"wait", "9-1"}).code == 2);
  CHECK(cluster.run({"suspend", "1-3"}).code == 2);   // they are over
  CHECK(cluster.run({"train", "-d"}, project).code == 0);   // which goes on
  const Output pruned = cluster.run({"prune", "1-9", "--yes"});
  CHECK_MESSAGE(says(pruned, "2 ended experiments are forgotten: 2, 3"), pruned.all());
  CHECK(cluster.run({"status", "4"}).code == 0);
  CHECK(cluster.run({"prune", "2-3", "--yes"}).code == 2);
}

TEST_CASE("kill --force skips the grace of those that ignore TERM, grandchildren too") {
  Cluster cluster;
  fs::path project = cluster.project(single(
      "(trap '' TERM; setsid sh -c \"trap '' TERM; sleep 1000\" & echo two of us; sleep 1000)\n"
      "  stop-grace: 1h"));
  auto train = cluster.start({"train"}, project);
  train->wait_for("two of us");
  CHECK(cluster.run({"kill", "--force", "1"}).code == 0);
  CHECK(train->wait().code == 130);
}

TEST_CASE("kill does not say killed of what has not ended") {
  Cluster cluster;
  fs::path project = cluster.project(
      single("(trap '' TERM; echo deaf; while :; do sleep 1000; done)\n  stop-grace: 1h"));
  auto train = cluster.start({"train"}, project);
  train->wait_for("deaf");
  Output kill = cluster.run({"kill", "1"});
  CHECK_MESSAGE(says(kill, "1 is being killed"), kill.all());
  CHECK(says(cluster.run({"kill", "1"}), "1 is already STOPPING"));
  Output force = cluster.run({"kill", "--force", "1"});
  CHECK_MESSAGE(!says(force, "already"), force.all());
  CHECK(train->wait().code == 130);
}

TEST_CASE("Ctrl-C detaches, says that it goes on, and logs -f comes back to it") {
  Cluster cluster;
  fs::path gate = cluster.folder() / "gate";
  REQUIRE(mkfifo(gate.c_str(), 0600) == 0);
  fs::path project =
      cluster.project(single("echo at work; cat " + gate.string() + "; echo done at last"));
  auto train = cluster.start({"train"}, project);
  train->wait_for("at work");
  train->signal(SIGINT);
  Output left = train->wait();
  CHECK_MESSAGE(left.code == 0, left.all());
  CHECK(says(left, "dtrain logs -f 1"));
  CHECK(says(left, "dtrain kill 1"));
  CHECK(facts(cluster.run({"status", "1", "--json"}))["state"] == "RUNNING");

  auto logs = cluster.start({"logs", "-f", "1"}, project);
  logs->wait_for("at work");
  write_file(gate, "word\n");
  Output end = logs->wait();
  CHECK(says(end, "done at last"));
  CHECK_MESSAGE(says(end, "Output: runs/1\n"), end.all());
  CHECK(cluster.run({"wait", "1"}).code == 0);
}

TEST_CASE("Ctrl-C before it is submitted says that nothing was, and in the middle where to look") {
  Cluster cluster;
  REQUIRE(fs::create_directories(cluster.home()));
  write_file(cluster.home() / "config.yml", "sync: {warn: 1KiB, ask: 2KiB}\n");
  const fs::path project = cluster.project(single("exec sleep 1000"));
  write_file(project / "large", std::string(4096, 'x'));
  REQUIRE(cluster.run({"daemon", "start"}).code == 0);
  const auto ended_by_ctrl_c = [](Screenful& train) {
    train.type("\x03");
    const std::string seen = train.read_until("is there\r\n");
    const int status = train.changed();
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGINT);
    return seen;
  };
  Screenful before(cluster.command({"train"}, project));
  before.read_until("Send it as it is?");
  CHECK(ended_by_ctrl_c(before).find("^C\r\ndtrain: interrupted: nothing was submitted\r\n") != std::string::npos);
  CHECK(facts(cluster.run({"status", "-a", "--json"}))["experiments"].empty());

  Screenful amid(cluster.command({"train"}, project));
  amid.read_until("Send it as it is?");
  const pid_t daemon = facts(cluster.run({"daemon", "status", "--json"}))["pid"];
  kill(daemon, SIGSTOP);
  amid.type("y\n");
  amid.read_until("Syncing project");
  const std::string seen = ended_by_ctrl_c(amid);
  kill(daemon, SIGCONT);
  CHECK_MESSAGE(seen.find("^C\r\ndtrain: interrupted while it was submitted: `dtrain status` tells whether it is there\r\n") != std::string::npos, seen);
}

TEST_CASE("train --tied takes the experiment with it") {
  Cluster cluster;
  fs::path project = cluster.project(single("echo at work; exec sleep 1000"));
  for (const auto& [number, id] :
       {std::pair{SIGTERM, "1"}, {SIGQUIT, "2"}, {SIGHUP, "3"}, {SIGINT, "4"}}) {
    auto train = cluster.start({"train", "--tied"}, project);
    train->wait_for("at work");
    train->signal(number);
    CHECK_MESSAGE(train->wait().code == 130, number);
    CHECK(cluster.run({"wait", id}).code == 130);
  }
}

TEST_CASE("a second Ctrl-C leaves train --tied no sooner than the first has killed the experiment") {
  Cluster cluster;
  const fs::path project = cluster.project(single("echo at work; exec sleep 1000"));
  Screenful train(cluster.command({"train", "--tied"}, project));
  train.read_until("at work\r\n");
  const pid_t daemon = facts(cluster.run({"daemon", "status", "--json"}))["pid"];
  kill(daemon, SIGSTOP);
  train.type("\x03");
  train.read_until("^C\r\n");
  train.type("\x03");
  train.read_until("^C");  // the terminal has sent it
  kill(daemon, SIGCONT);
  const int status = train.changed();
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 130);
  CHECK(cluster.run({"wait", "1"}).code == 130);
}

TEST_CASE("a second Ctrl-C, once the experiment is being killed, leaves train --tied at once") {
  Cluster cluster;
  const fs::path project = cluster.project(single("trap '' TERM; echo at work; while :; do sleep 0.1; done"));
  auto train = cluster.start({"train", "--tied"}, project);
  train->wait_for("at work");
  train->signal(SIGINT);
  train->wait_for("STOPPING");
  train->signal(SIGINT);
  const Output left = train->wait();
  CHECK(left.code == 128 + SIGINT);
  CHECK_MESSAGE(left.err.ends_with("dtrain: 1 is still being killed; at once: dtrain kill --force 1\n"), left.err);
  CHECK(facts(cluster.run({"status", "1", "--json"}))["state"] == "STOPPING");
}

TEST_CASE("after Ctrl-C in train --tied the log goes on in a line of its own") {
  Cluster cluster;
  fs::path project = cluster.project(single("echo at work; exec sleep 1000"));
  Screenful train(cluster.command({"train", "--tied"}, project));
  train.read_until("at work\r\n");
  train.type("\x03");
  const std::string seen = train.read_until("STOPPING");
  CHECK_MESSAGE(seen.find("^C\r\n") != std::string::npos, seen);
  train.read_until("Output: ");
  const int status = train.changed();
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 130);
}

TEST_CASE("train --tied takes the experiment with it when its reader leaves") {
  Cluster cluster;
  const fs::path project = cluster.project(single("while echo at work; do sleep 0.1; done"));
  Command shell = cluster.command({}, project);
  shell.argv = {"sh", "-c", "$0 train --tied | head -n 2", shell.argv.front()};
  const Output output = run(shell);
  CHECK_MESSAGE(output.code == 0, output.all());
  CHECK(cluster.run({"wait", "1"}).code == 130);
}

TEST_CASE("who follows ends with the reader, also where nothing more is printed") {
  Cluster cluster;
  const fs::path project = cluster.project(single("echo at work; exec sleep 1000"));
  const auto first_word = [&](const std::string& command) {
    Command shell = cluster.command({}, project);
    shell.argv = {"sh", "-c", "$0 " + command + " | grep -m 1 -o ' at work'", shell.argv.front()};
    const Output output = run(shell);
    CHECK_MESSAGE(output.code == 0, output.all());
    CHECK(output.out == " at work\n");
    return output.err;
  };
  const std::string left = first_word("train");
  CHECK_MESSAGE(left.find("Detached; 1 goes on. Come back: ") != std::string::npos, left);
  CHECK(first_word("logs -f 1") == "");
  CHECK(facts(cluster.run({"status", "1", "--json"}))["state"] == "RUNNING");
  first_word("train --tied");
  CHECK(cluster.run({"wait", "2"}).code == 130);
}

TEST_CASE("a restart budget starts a failed program again, and its end is that of the last try") {
  Cluster cluster;
  cluster.own_ports();   // a start that finds its port taken counts as a try
  const std::string second_try_works =
      "if test -e $OUTPUT_DIR/tried; then echo try $DTRAIN_ATTEMPT works; exit 0; fi; "
      "touch $OUTPUT_DIR/tried; echo try $DTRAIN_ATTEMPT fails; exit 3";
  fs::path project = cluster.project(
      single("\"" + second_try_works + "\"\n  restart: {limit: 1, backoff: 0s}"));
  Output train = cluster.run({"train"}, project);
  CHECK_MESSAGE(train.code == 0, train.all());
  CHECK(says(train, "try 1 fails"));
  CHECK(says(train, "RESTARTING"));
  CHECK(says(train, "try 2 works"));

  write_file(project / "dtrain.yml", single("echo try $DTRAIN_ATTEMPT; exit 3\n  restart: {limit: 2, backoff: 0s}"));
  train = cluster.run({"train"}, project);
  CHECK(train.code == 3);
  CHECK(facts(cluster.run({"why", "2", "--json"}))["log_lines"] == Json({"try 3"}));
  CHECK_MESSAGE(says(train, "all 2 restarts are used"), train.all());
}
