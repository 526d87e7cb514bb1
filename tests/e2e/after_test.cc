// dtrain train --after: what begins when others have ended, and what fails with them.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"

using namespace dtrain::tests;

namespace {

std::string state_of(Cluster& cluster, const std::string& id) { return facts(cluster.run({"status", id, "--json"}))["state"]; }

// Goes on when somebody makes `go` in its OUTPUT_DIR.
constexpr const char* kWaitsToGo =
    "project: p\ntrain:\n  resources: {cpus: 0.1, mem: 32}\n"
    "  run: |\n"
    "    mkfifo $OUTPUT_DIR/go\n"
    "    echo the model > $OUTPUT_DIR/model\n"
    "    echo ready\n"
    "    exit $(cat $OUTPUT_DIR/go)\n";

void begin(Cluster& cluster, const fs::path& project) {
  REQUIRE(cluster.run({"train", "-d"}, project).code == 0);
  cluster.start({"logs", "-f", "1"}, project)->wait_for("ready");
}

void end(const fs::path& project, const std::string& code) { write_file(project / "runs/1/go", code + "\n"); }

const std::vector<std::string> kReads = {"--cpus", "0.1", "--mem", "32MiB", "--", "sh", "-c", "echo read $(cat $AFTER_DIR/model)"};

std::vector<std::string> reading(std::vector<std::string> words) {
  words.insert(words.end(), kReads.begin(), kReads.end());
  return words;
}

}  // namespace

TEST_CASE("what comes after another begins with its results, also after a new daemon") {
  Cluster cluster;
  const fs::path project = cluster.project(kWaitsToGo);
  begin(cluster, project);
  const Output plan = cluster.run(reading({"train", "--dry-run", "--after", "1"}), project);
  CHECK_MESSAGE(says(plan, "It would wait for 1 (RUNNING) to finish"), plan.all());
  REQUIRE(cluster.run(reading({"train", "-d", "--after", "1"}), project).code == 0);
  REQUIRE(cluster.run(reading({"train", "-d", "--after", "2,1"}), project).code == 0);
  CHECK(state_of(cluster, "2") == "CREATED");
  CHECK(says(cluster.run({"why", "2"}), "waits for 1 (RUNNING) to finish"));
  CHECK(says(cluster.run({"why", "3"}), "waits for 2 (CREATED) and 1 (RUNNING) to finish"));
  const Output shown = cluster.run({"status", "3"});
  CHECK_MESSAGE(says(shown, "2, 1"), shown.all());
  CHECK(facts(cluster.run({"status", "3", "--json"}))["after"] == Json::array({"2", "1"}));

  kill_all(cluster.processes("daemon run"));
  CHECK(state_of(cluster, "2") == "CREATED");
  end(project, "0");
  CHECK(cluster.run({"wait", "2"}).code == 0);
  CHECK(cluster.log_of("2.train") == "read the model\n");
  CHECK(cluster.run({"wait", "3"}).code == 0);
  CHECK(cluster.log_of("3.train").find("outputs/2/model: No such file") != std::string::npos);   // it looks for what 2 left
  // By now it has ended: what comes after it begins at once, a rerun too.
  CHECK(cluster.run(reading({"train", "--after", "1"}), project).code == 0);
  const Output again = cluster.run({"rerun", "2"}, project);
  CHECK_MESSAGE(says(again, "read the model"), again.all());
}

TEST_CASE("what comes after a failure fails, unless any end will do") {
  Cluster cluster;
  const fs::path project = cluster.project(kWaitsToGo);
  begin(cluster, project);
  REQUIRE(cluster.run(reading({"train", "-d", "--after", "1"}), project).code == 0);
  REQUIRE(cluster.run(reading({"train", "-d", "--after", "2"}), project).code == 0);
  REQUIRE(cluster.run(reading({"train", "-d", "--after-end", "1"}), project).code == 0);
  end(project, "3");
  CHECK(cluster.run({"wait", "2"}).code == 1);
  CHECK(cluster.run({"wait", "3"}).code == 1);
  CHECK(cluster.run({"wait", "4"}).code == 0);
  CHECK(cluster.log_of("4.train") == "read the model\n");
  const Output why = cluster.run({"why", "2"});
  CHECK_MESSAGE(says(why, "was to come after 1, which is FAILED"), why.all());
  CHECK(says(cluster.run({"why", "3"}), "was to come after 2, which is FAILED"));

  const Output refused = cluster.run(reading({"train", "--after", "1"}), project);
  CHECK(refused.code == 2);
  CHECK_MESSAGE(says(refused, "1 is FAILED"), refused.all());
  CHECK_MESSAGE(says(refused, "--after-end 1"), refused.all());
  CHECK(says(why, "dtrain rerun 2 --after ID, where ID is a run of that one that is FINISHED"));
  const Output again = cluster.run({"rerun", "2"}, project);
  CHECK(again.code == 2);
  const Output other = cluster.run({"rerun", "2", "--after", "4"}, project);
  CHECK_MESSAGE(other.code != 2, other.all());
}

TEST_CASE("of a set all members wait, and why is told of each and of all") {
  Cluster cluster;
  const fs::path project = cluster.project(kWaitsToGo);
  begin(cluster, project);
  const fs::path set = cluster.project("project: q\ntrain:\n  resources: {cpus: 0.1, mem: 32}\n  after: 1\n  concurrency: 1\n"
                                       "  parameters: {rate: [1, 2]}\n  run: echo $RATE from $(cat $AFTER_DIR/model)\n");
  REQUIRE(cluster.run({"train", "-d"}, set).code == 0);
  CHECK(state_of(cluster, "2") == "CREATED");
  for (const char* id : {"2", "2.2"}) {
    const Output why = cluster.run({"why", id});
    CHECK_MESSAGE(says(why, "waits for 1 (RUNNING) to finish"), why.all());
  }
  end(project, "0");
  CHECK(cluster.run({"wait", "2"}).code == 0);
  CHECK(cluster.log_of("2.2.train") == "2 from the model\n");
}

TEST_CASE("where the results are of what left none, there is nothing") {
  Cluster cluster;
  const fs::path set = cluster.project("project: q\ntrain:\n  resources: {cpus: 0.1, mem: 32}\n  concurrency: 1\n"
                                       "  parameters: {rate: [1, 2]}\n  run: mkfifo $OUTPUT_DIR/go; echo ready; cat $OUTPUT_DIR/go\n");
  REQUIRE(cluster.run({"train", "-d"}, set).code == 0);
  cluster.start({"logs", "-f", "1.1"}, set)->wait_for("ready");
  const std::vector<std::string> lists = {"--cpus", "0.1", "--mem", "32MiB", "--", "sh", "-c", "ls -a $AFTER_DIR"};
  std::vector<std::string> words = {"train", "-d", "--after-end", "1.2"};
  words.insert(words.end(), lists.begin(), lists.end());
  REQUIRE(cluster.run(words, set).code == 0);
  REQUIRE(cluster.run({"kill", "1.2"}).code == 0);   // it never began
  CHECK(cluster.run({"wait", "2"}).code == 0);
  CHECK(cluster.log_of("2.train") == ".\n..\n");
  // Nor does an empty one go with a prune while somebody waits.
  REQUIRE(cluster.run({"train", "--cpus", "0.1", "--mem", "32MiB", "--", "true"}, set).code == 0);   // 3
  words[3] = "3,1";
  REQUIRE(cluster.run(words, set).code == 0);   // 4
  REQUIRE(cluster.run({"prune", "--yes", "3"}).code == 0);
  write_file(set / "runs/1/1/go", "\n");
  CHECK(cluster.run({"wait", "4"}).code == 0);
}

TEST_CASE("after which experiment is told with its name or not at all") {
  Cluster cluster;
  const fs::path project = cluster.project("project: p\ntrain: {resources: {cpus: 0.1, mem: 32}, run: echo ran}\n");
  REQUIRE(cluster.run({"train"}, project).code == 0);
  for (const auto& [word, what] : std::vector<std::pair<std::string, std::string>>{
           {"7", "there is no experiment 7"}, {"1.2", "experiment 1 is not a set"}, {"1.train", "an experiment such as 4"},
           {"0", "an experiment such as 4"}, {"1,", "an experiment such as 4"}, {"", "an experiment such as 4"}}) {
    const Output refused = cluster.run({"train", "--after", word}, project);
    CHECK_MESSAGE(refused.code == 2, word);
    CHECK_MESSAGE(says(refused, what), refused.all());
  }
  write_file(project / "dtrain.yml", "project: p\ntrain: {resources: {cpus: 0.1, mem: 32}, after: 1, run: 'echo after $AFTER_DIR'}\n");
  const Output here = cluster.run({"train"}, project);
  REQUIRE_MESSAGE(here.code == 0, here.all());
  CHECK_MESSAGE(says(here, "outputs/1"), here.all());
  const Output alone = cluster.run({"train", "--set", "train.after=null"}, project);
  CHECK(alone.code == 0);
  CHECK_MESSAGE(!says(alone, "outputs/1"), alone.all());
  const Output both = cluster.run({"train", "--after-end", "1,2", "--dry-run", "--set", "train.after=[9]"}, project);
  CHECK_MESSAGE(says(both, "there is no experiment 9"), both.all());   // each option is about its own key
  CHECK(says(cluster.run({"check", "--set", "train.env={AFTER_DIR: x}"}, project), "AFTER_DIR"));
  CHECK(says(cluster.run({"train", "--set", "train.after=[1, x]"}, project), "an experiment such as 4"));
}
