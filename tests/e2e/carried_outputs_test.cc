// Hosts that do not see the daemon's outputs: what is written there comes home, and what is needed there is brought.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/support/cluster.h"
#include "tests/support/digits.h"
#include "tests/support/facts.h"
#include "tests/support/network.h"
#include "tests/support/skipped.h"

using namespace dtrain::tests;

namespace {

// The daemon on host 0 of a network; on host 1, called "far", something else lies where it has its outputs.
struct BlindHost {
  Network network{2};
  Cluster cluster;
  std::unique_ptr<Process> runner;

  void start_daemon() {
    Command daemon = cluster.command({"daemon", "start"});
    daemon.netns = network.netns(0);
    const Output started = run(daemon);
    REQUIRE_MESSAGE(started.code == 0, started.all());
  }
  void start_runner() {
    Command blind = cluster.command({"runner", "run", "--join", (cluster.folder() / "far.key").string(), "--home",
                                     (cluster.folder() / "far").string(), "--mem", "4GiB"});
    blind.netns = network.netns(1);
    blind.env["DTRAIN_HOME"] = (cluster.folder() / "none").string();
    blind.argv.insert(blind.argv.begin(), {"/usr/bin/unshare", "--mount", "/bin/sh", "-c",
                                           "mount -t tmpfs none " + (cluster.home() / "outputs").string() + " && exec \"$0\" \"$@\""});
    runner = std::make_unique<Process>(blind);
    runner->wait_for("joined the daemon");
  }
  void start() {
    fs::create_directories(cluster.home());
    write_file(cluster.home() / "config.yml", "host: {mem: 4GiB}\nlisten: '" + Network::address(0) + ":7077'\n");
    start_daemon();
    const Output invited = cluster.run({"hosts", "invite", "far"}, cluster.folder());
    REQUIRE_MESSAGE(invited.code == 0, invited.all());
    start_runner();
  }
  fs::path copies() const { return cluster.folder() / "far/outputs"; }
  // Until nothing is left there.
  void await_no_copies() {
    Process gone({.argv = {"/bin/sh", "-c", "until rmdir '" + copies().string() + "' 2>/dev/null; do inotifywait -qq -t 1 -e delete '" +
                                               copies().string() + "'; done; echo gone"},
                  .directory = {},
                  .env = {},
                  .netns = {}});
    gone.wait_for("gone");
  }
};

}  // namespace

TEST_CASE("what is written on a host that does not see the daemon's outputs comes home, as it is") {
  BlindHost scene;
  if (!scene.network.unavailable().empty()) return say_skipped(scene.network.unavailable());
  scene.start();
  const fs::path project = scene.cluster.project("project", {{"dtrain.yml", R"(project: p
train:
  outputs: [made]
  run: |
    cd "$OUTPUT_DIR"
    case $PWD in */far/outputs/*) echo in a copy;; esac
    mkdir -p "deep/er folder" empty
    head -c 5000000 /dev/urandom > "deep/er folder/large"
    cksum < "deep/er folder/large"
    : > nothing; printf '#!/bin/sh\necho runs\n' > program; chmod 755 program
    ln -s "deep/er folder" newest; ln -s /etc/passwd out; mkfifo pipe
    echo collected > "$OLDPWD/made"
)"}});
  const Output train = scene.cluster.run({"train", "--host", "far"}, project);
  REQUIRE_MESSAGE(train.code == 0, train.all());
  CHECK_MESSAGE(train.out.find("in a copy") != std::string::npos, train.out);
  const fs::path output = project / "runs/1";
  const Output sum = run({.argv = {"/bin/sh", "-c", "cksum < newest/large; ./program; cat made; ls -A . deep"}, .directory = output, .env = {}, .netns = {}});
  CHECK_MESSAGE(train.out.find(sum.out.substr(0, sum.out.find('\n'))) != std::string::npos, sum.out);
  CHECK_MESSAGE(sum.out.find("runs\ncollected\n") != std::string::npos, sum.out);
  CHECK(fs::is_directory(output / "empty"));
  CHECK(fs::file_size(output / "nothing") == 0);
  CHECK(fs::read_symlink(output / "newest") == "deep/er folder");
  CHECK(!fs::exists(fs::symlink_status(output / "out")));
  CHECK(!fs::exists(output / "pipe"));
  const Output status = scene.cluster.run({"status", "1"});
  CHECK_MESSAGE(status.out.find("not carried") != std::string::npos, status.out);
}

TEST_CASE("many that begin on such a host at once wait for their turn, and none begins twice") {
  BlindHost scene;
  if (!scene.network.unavailable().empty()) return say_skipped(scene.network.unavailable());
  scene.start();
  const fs::path project = scene.cluster.project(
      "project: p\ntrain:\n  resources: {cpus: 0.01, mem: 32}\n  parameters: {n: {range: {min: 1, max: 60}}}\n  run: echo {{ n }} > \"$OUTPUT_DIR/n\"\n");
  const Output train = scene.cluster.run({"train", "--host", "far"}, project);
  REQUIRE_MESSAGE(train.code == 0, train.all());
  CHECK_MESSAGE(train.all().find("start failed") == std::string::npos, train.all());
  for (int n = 1; n <= 60; ++n) CHECK(fs::exists(project / fmt::format("runs/1/{}/n", n)));
}

TEST_CASE("what a replica left in its working directory on another host is listed, and copied from there, also while it runs") {
  BlindHost scene;
  if (!scene.network.unavailable().empty()) return say_skipped(scene.network.unavailable());
  scene.start();
  Cluster& cluster = scene.cluster;
  const fs::path gate = cluster.folder() / "gate";
  REQUIRE(mkfifo(gate.c_str(), 0600) == 0);
  const fs::path project = cluster.project("project", {{"dtrain.yml", "project: p\ntrain:\n  resources: {cpus: 0.1, mem: 32}\n  run:\n"
                                                                      "    - mkdir -p ckpt/1; head -c 3000000 /dev/urandom > ckpt/1/model; cksum < ckpt/1/model\n"
                                                                      "    - ln -s 1/model ckpt/last; echo saved; cat '" + gate.string() + "'\n"},
                                                       {"sent", "sent\n"}});
  const auto train = cluster.start({"train", "--host", "far"}, project);
  train->wait_for("saved");
  const Output early = cluster.run({"output", "ls", "1.train"}, project);
  CHECK_MESSAGE(early.out.find("1 file in the work directory of 1.train on far: 2.9 MB\n") != std::string::npos, early.all());
  std::ofstream(gate) << "go\n";
  const Output ended = train->wait();
  REQUIRE_MESSAGE(ended.code == 0, ended.all());
  const Output status = cluster.run({"status", "1"}, project);
  CHECK_MESSAGE(status.out.find("(dtrain output cp 1.train)") != std::string::npos, status.out);

  const Json listed = facts(cluster.run({"output", "ls", "1.train", "--json"}, project))["files"];
  REQUIRE(listed.size() == 2);
  CHECK(listed[0]["path"] == "ckpt/1/model");
  CHECK(listed[1]["link_to"] == "1/model");
  const Output copied = cluster.run({"output", "cp", "1.train", "ckpt/1"}, project);
  REQUIRE_MESSAGE(copied.code == 0, copied.all());
  const Output sum = run({.argv = {"/bin/sh", "-c", "cksum < 1/model"}, .directory = project, .env = {}, .netns = {}});
  CHECK_MESSAGE(ended.out.find(sum.out.substr(0, sum.out.find('\n'))) != std::string::npos, sum.all());
  const Output twice = cluster.run({"output", "cp", "1.train", "ckpt/1"}, project);
  CHECK(twice.code == 2);
  CHECK_MESSAGE(twice.err.find("./1 exists") != std::string::npos, twice.err);
  CHECK(cluster.run({"output", "cp", "1.train", "ckpt/1", "-f"}, project).code == 0);
  REQUIRE(cluster.run({"output", "cp", "1.train"}, project).code == 0);
  CHECK(fs::read_symlink(project / "output-1.train/ckpt/last") == "1/model");
  CHECK(!fs::exists(project / "output-1.train/sent"));
  const Output none = cluster.run({"output", "cp", "1.train", "sent", "-t", "elsewhere"}, project);
  CHECK(none.code == 2);
  CHECK_MESSAGE(none.err.find("1.train has left no 'sent'") != std::string::npos, none.err);
  const Output named = cluster.run({"output", "cp", "1", "ckpt"}, project);
  CHECK(named.code == 2);
  CHECK_MESSAGE(named.err.find("1 has no 'ckpt' in its output") != std::string::npos, named.err);
}

TEST_CASE("what starts again on such a host finds what was written before, and nothing stays there when it is over") {
  BlindHost scene;
  if (!scene.network.unavailable().empty()) return say_skipped(scene.network.unavailable());
  scene.start();
  const fs::path project = scene.cluster.project(R"(project: p
train:
  restart: {limit: 2, backoff: 0s}
  run: |
    cd "$OUTPUT_DIR"
    ls
    if [ -f first ]; then rm first; mv second third; exit 0; fi
    echo 1 > first; echo 2 > second; exit 3
)");
  const Output train = scene.cluster.run({"train", "--host", "far"}, project);
  REQUIRE_MESSAGE(train.code == 0, train.all());
  CHECK(!fs::exists(project / "runs/1/first"));
  CHECK(!fs::exists(project / "runs/1/second"));
  CHECK(read_file(project / "runs/1/third") == "2\n");
  scene.await_no_copies();
}

TEST_CASE("what goes on from another experiment finds its outputs on such a host") {
  BlindHost scene;
  if (!scene.network.unavailable().empty()) return say_skipped(scene.network.unavailable());
  scene.start();
  const fs::path project = scene.cluster.project(R"yaml(project: p
train:
  run: |
    if [ -n "$RESUME_DIR" ]; then echo "from $(cat "$RESUME_DIR/in/it")"; echo more >> "$RESUME_DIR/in/it"; exit; fi
    mkdir "$OUTPUT_DIR/in"; echo the first > "$OUTPUT_DIR/in/it"
)yaml");
  REQUIRE(scene.cluster.run({"train"}, project).code == 0);
  const Output resumed = scene.cluster.run({"rerun", "1", "--resume", "--host", "far"}, project);
  REQUIRE_MESSAGE(resumed.code == 0, resumed.all());
  CHECK_MESSAGE(resumed.out.find("from the first") != std::string::npos, resumed.out);
  CHECK(read_file(project / "runs/1/in/it") == "the first\n");   // what was before is not written to
  const Output after = scene.cluster.run({"train", "--after", "1", "--host", "far", "--", "sh", "-c", "cat $AFTER_DIR/in/it; echo at $AFTER_DIR"}, project);
  REQUIRE_MESSAGE(after.code == 0, after.all());
  CHECK_MESSAGE(after.out.find("the first") != std::string::npos, after.out);
  CHECK_MESSAGE(after.out.find("at " + (scene.cluster.home() / "outputs/1").string()) == std::string::npos, after.out);   // a copy
  // One that goes on as well has both.
  const Output both = scene.cluster.run({"rerun", "3", "--resume", "--host", "far"}, project);
  REQUIRE_MESSAGE(both.code == 0, both.all());
  CHECK_MESSAGE(both.out.find("the first") != std::string::npos, both.out);
}

namespace {

const std::string kRestartedTraining = R"(project: digits
train:
  framework: engine
  resources: {cpus: 0.2, mem: 3GiB}
  restart: {limit: 1, backoff: 0s}
  engine:
    model: {mlp: {hidden: [32]}}
    data: {train: data/train, test: data/test}
    checkpoint: {every: 1 epochs}
    epochs: 200   # some seconds, of which the test needs one
)";

void kill_replica(Cluster& cluster, const std::string& id) {
  const Json replica = with_id(facts(cluster.run({"status", "1", "--json"}))["replicas"], id);
  REQUIRE(::kill(replica["pid"].get<pid_t>(), SIGKILL) == 0);
}

}  // namespace

TEST_CASE("a training over hosts that see nothing of each other goes on from its checkpoint when all start again") {
  BlindHost scene;
  if (!scene.network.unavailable().empty()) return say_skipped(scene.network.unavailable());
  scene.start();
  const fs::path project = digits_project(scene.cluster, kRestartedTraining + "    distributed: {worker: 2}\n");
  auto train = scene.cluster.start({"train"}, project);
  train->wait_for(" epoch=5 ");
  kill_replica(scene.cluster, "1.worker.1");
  const Output ended = train->wait();
  CHECK_MESSAGE(ended.code == 0, ended.all());
  CHECK_MESSAGE(ended.out.find("resumed_at_step=") != std::string::npos, ended.out);
  CHECK(fs::file_size(project / "runs/1/model.safetensors") > 100'000);
}

TEST_CASE("a parameter server on such a host starts again alone, with all that it knew") {
  BlindHost scene;
  if (!scene.network.unavailable().empty()) return say_skipped(scene.network.unavailable());
  scene.start();
  const std::string strategy = "    strategy: {parameter-server: {mode: async}}\n    distributed: {worker: 1, ps: 1}\n";
  const fs::path project = digits_project(scene.cluster, kRestartedTraining + strategy);
  auto train = scene.cluster.start({"train", "--host", "far", "--set", "train.resources.mem=128MiB"}, project);
  train->wait_for(" epoch=5 ");
  kill_replica(scene.cluster, "1.ps.1");
  const Output ended = train->wait();
  CHECK_MESSAGE(ended.code == 0, ended.all());
  CHECK(ended.out.find("resumed_at_step=") == std::string::npos);
  CHECK(!fs::exists(project / "runs/1/.dtrain-ps-state"));
  CHECK(fs::file_size(project / "runs/1/model.safetensors") > 100'000);
  scene.await_no_copies();
}

TEST_CASE("what is written there comes while it runs, and through kills of daemon and runner") {
  BlindHost scene;
  if (!scene.network.unavailable().empty()) return say_skipped(scene.network.unavailable());
  scene.start();
  const fs::path go = scene.cluster.folder() / "go";
  REQUIRE(mkfifo(go.c_str(), 0600) == 0);
  const fs::path project = scene.cluster.project("project: p\ntrain: {run: \"echo a morning > $OUTPUT_DIR/early; echo up; cat " +
                                                 go.string() + " > $OUTPUT_DIR/late\"}\n");
  auto train = scene.cluster.start({"train", "--host", "far"}, project);
  train->wait_for("up");
  Process arrives({.argv = {"/usr/bin/tail", "-F", (project / "runs/1/early").string()}, .directory = {}, .env = {}, .netns = {}});
  arrives.wait_for("a morning");
  for (const std::string who : {"daemon run", "runner run --join"}) {
    kill_all(scene.cluster.processes(who));
  }
  std::ofstream(go) << "the end\n";
  scene.runner.reset();
  scene.start_daemon();
  scene.start_runner();
  const Output ended = train->wait();
  CHECK_MESSAGE(ended.code == 0, ended.all());
  CHECK(read_file(project / "runs/1/late") == "the end\n");
  scene.await_no_copies();
}

TEST_CASE("what shows outputs of another experiment does not run where they are not") {
  BlindHost scene;
  if (!scene.network.unavailable().empty()) return say_skipped(scene.network.unavailable());
  scene.start();
  const fs::path project = scene.cluster.project("project: p\ntrain: {env: {TENSORBOARD_LOGDIR: /somewhere}, run: echo here}\n");
  const Output train = scene.cluster.run({"train", "--host", "far"}, project);
  CHECK(train.code == 1);
  CHECK_MESSAGE(train.all().find("TENSORBOARD_LOGDIR: the daemon's /somewhere is not there on far") != std::string::npos, train.all());
}
