// Sets that search: values drawn at random, members that end early, a set that ends with too many failures, and the failed
// members again.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <set>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"

using namespace dtrain::tests;

namespace {

// Members that say what they are told to, by a pipe in their OUTPUT_DIR, until that is "done". The pipe never runs dry:
// it is open for writing, too.
constexpr const char* kSays = R"(project: p
train:
  resources: {cpus: 0.1, mem: 32}
  parameters: {rate: [1, 2, 3]}
  metrics: [loss, epoch]
  search:
    metric: loss
    goal: min
    stop-early: {after: 2, factor: 2, by: epoch}
  stop-grace: 1m
  run: |
    mkfifo $OUTPUT_DIR/say
    exec 3<>$OUTPUT_DIR/say
    echo ready
    while read -r line <&3; do
      echo "$line"
      test "$line" = done && exit 0
    done
)";

void say(const fs::path& project, int member, const std::string& lines) {
  write_file(project / fmt::format("runs/1/{}/say", member), lines);
}

Json member(Cluster& cluster, const std::string& id) { return facts(cluster.run({"status", id, "--json"})); }

}  // namespace

TEST_CASE("a member ends early where others were better, also after a new daemon") {
  Cluster cluster;
  const fs::path project = cluster.project(kSays);
  auto train = cluster.start({"train"}, project);
  for (const char* one : {"1.1", "1.2", "1.3"}) {
    train->wait_for(fmt::format("{}.train | ", one));   // it is known
    cluster.start({"logs", "-f", one}, project)->wait_for("ready");
  }

  auto first = cluster.start({"logs", "-f", "1.1"}, project);
  say(project, 1, "loss=1 epoch=1\nloss=0.5 epoch=2\n");
  first->wait_for("loss=0.5");   // the first, of whom nobody is better
  say(project, 2, "loss=0.4 epoch=1\nloss=0.7 epoch=1\nloss=0.3 epoch=1\n");   // it is not there yet
  auto second = cluster.start({"logs", "-f", "1.2"}, project);
  second->wait_for("loss=0.3");
  CHECK(member(cluster, "1.2")["state"] == "RUNNING");
  say(project, 3, "loss=0.8 epoch=2\n");
  CHECK(cluster.run({"wait", "1.3"}).code == 0);
  Json third = member(cluster, "1.3");
  CHECK(third["state"] == "FINISHED");
  CHECK(third["ended_early"] == true);
  CHECK(third["reason"] == "ended early: loss=0.8 by epoch=2 is number 2 of 2, and only the best goes on");

  kill_all(cluster.processes("daemon run"));
  CHECK(member(cluster, "1.3")["ended_early"] == true);
  say(project, 2, "loss=0.6 epoch=2\n");   // its best was 0.3, with the last daemon
  say(project, 1, "loss=0.45 epoch=4\n");
  first->wait_for("loss=0.45");
  say(project, 2, "loss=0.9 epoch=3\nloss=0.2 epoch=4\n");
  second->wait_for("loss=0.2");
  CHECK(member(cluster, "1.2")["state"] == "RUNNING");
  CHECK(member(cluster, "1.1")["state"] == "RUNNING");
  say(project, 1, "loss=0.4 epoch=8\n");
  first->wait_for("loss=0.4 ");
  say(project, 2, "loss=0.35 epoch=8\ndone\n");   // better than 0.4: it had 0.2
  say(project, 1, "done\n");
  const Output end = train->wait();
  CHECK_MESSAGE(end.code == 0, end.all());
  CHECK_MESSAGE(says(end, "3 of 3 members finished, 1 of them early, 0 failed"), end.all());
  CHECK_MESSAGE(says(end, "Best: 1.2: loss=0.2 (rate=2)"), end.all());
  const Json set = member(cluster, "1");
  CHECK(set["set"]["ended_early"] == 1);
  CHECK(set["best"]["id"] == "1.2");
  CHECK(set["best"]["value"] == 0.2);
  const Output shown = cluster.run({"status", "1"});
  CHECK_MESSAGE(says(shown, "3 finished (1 early)"), shown.all());
  const std::string csv = cluster.run({"compare", "1", "--csv"}).out;
  CHECK_MESSAGE(has_in_order(csv, {"1.2,", "1.1,", "1.3,"}), csv);
}

TEST_CASE("others are measured by members that have ended by themselves, too, however soon that was") {
  Cluster cluster;
  const fs::path project = cluster.project(R"(project: p
train:
  resources: {cpus: 0.1, mem: 32}
  parameters: {k: [1, 2, 3, 4, 5]}
  metrics: [loss]
  concurrency: 1
  search: {metric: loss, goal: min, stop-early: {after: 1, factor: 2}}
  run: "echo loss=$K; test $K != 5 || exec sleep 1000"
)");
  REQUIRE(cluster.run({"train"}, project).code == 0);
  const Json last = member(cluster, "1.5");
  CHECK(last["ended_early"] == true);
  CHECK(last["reason"] == "ended early: loss=5 after 1 value is number 5 of 5, and the best 3 go on");
}

TEST_CASE("a set ends with too many failures, and what failed runs again by itself") {
  Cluster cluster;
  const fs::path project = cluster.project(R"(project: p
train:
  resources: {cpus: 0.1, mem: 32}
  parameters: {a: [1, 2, 3], b: [x, "y z"]}
  concurrency: 1
  search: {max-failed: 1}
  run: echo "$A $B"; test "$A" != 1
)");
  const Output train = cluster.run({"train"}, project);
  CHECK(train.code == 1);
  CHECK_MESSAGE(says(train, "0 of 6 members finished, 2 failed, 4 killed"), train.all());
  CHECK_MESSAGE(says(cluster.run({"why", "1"}), "more have failed than max-failed: 1 allows"), cluster.run({"why", "1"}).all());
  Json shown = member(cluster, "1");
  CHECK(shown["state"] == "FAILED");
  for (const char* failed : {"1.1", "1.2"}) CHECK(with_id(shown["members"], failed)["state"] == "FAILED");
  for (const char* other : {"1.3", "1.4", "1.5", "1.6"}) {
    CHECK(with_id(shown["members"], other)["state"] == "KILLED");
    CHECK(with_id(shown["members"], other)["reason"] == "more members of 1 have failed than max-failed: 1 allows");
    CHECK(cluster.log_of(std::string(other) + ".train").empty());
  }

  const Output again = cluster.run({"rerun", "1", "--failed", "--set", "train.search.max-failed=2", "--set", "train.run=echo \"$A $B\""}, project);
  CHECK_MESSAGE(again.code == 0, again.all());
  CHECK_MESSAGE(says(again, "Experiment 2 runs the 6 failed members of 1 again"), again.all());
  CHECK(cluster.log_of("2.2.train") == "1 y z\n");
  CHECK(cluster.log_of("2.5.train") == "3 x\n");
  const Output none = cluster.run({"rerun", "2", "--failed"}, project);
  CHECK(none.code == 2);
  CHECK_MESSAGE(says(none, "no member of 2 has failed or was killed"), none.all());
}

TEST_CASE("of a set of which one member failed that one runs again, as an experiment") {
  Cluster cluster;
  const fs::path project = cluster.project("project: p\ntrain:\n  resources: {cpus: 0.1, mem: 32}\n  parameters: {a: [1, 2, 3]}\n"
                                           "  run: echo \"$A\"; test \"$A\" != 2\n");
  CHECK(cluster.run({"train"}, project).code == 1);
  const Output again = cluster.run({"rerun", "1", "--failed"}, project);
  CHECK(again.code == 1);
  CHECK_MESSAGE(says(again, "Experiment 2 runs the one failed member of 1 again"), again.all());
  CHECK(cluster.log_of("2.train") == "2\n");
}

TEST_CASE("what is drawn is the same for the same file, and again for what runs again") {
  Cluster cluster;
  const fs::path project = cluster.project(R"(project: p
train:
  resources: {cpus: 0.1, mem: 32}
  parameters: {rate: {log-uniform: {min: 1e-5, max: 0.1}}, layers: [2, 4]}
  search: {samples: 6}
  run: echo "$RATE $LAYERS"
)");
  const auto lines = [&](const std::string& number) {
    std::multiset<std::string> all;
    for (int one = 1; one <= 6; ++one) all.insert(cluster.log_of(fmt::format("{}.{}.train", number, one)));
    return all;
  };
  REQUIRE(cluster.run({"train"}, project).code == 0);
  REQUIRE(cluster.run({"train"}, project).code == 0);
  REQUIRE(cluster.run({"rerun", "1"}, project).code == 0);
  REQUIRE(cluster.run({"train", "--set", "train.search.seed=2"}, project).code == 0);
  const auto first = lines("1");
  CHECK(std::set<std::string>(first.begin(), first.end()).size() == 6);
  CHECK(lines("2") == first);
  CHECK(lines("3") == first);
  CHECK(lines("4") != first);
  const std::string csv = cluster.run({"compare", "1", "--csv"}).out;
  for (const std::string& line : first) CHECK_MESSAGE(csv.find(line.substr(0, line.find(' '))) != std::string::npos, csv);
}
