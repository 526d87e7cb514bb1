// Metrics of a set, from what its members print and from the event files they write, to `status`
// and `compare`, with the daemon killed in between.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "schema/fd.h"
#include "tests/support/cluster.h"
#include "tests/support/facts.h"

using namespace dtrain::tests;

namespace {

void kill_daemon(const Cluster& cluster) {
  kill_all(cluster.processes("daemon run"));
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end == std::string::npos ? text.size() : end + 1;
  }
  return lines;
}

}  // namespace

TEST_CASE("a metric that nothing prints is shown as such") {
  Cluster cluster;
  const fs::path project = cluster.project(
      "project: p\ntrain:\n  metrics: [los]\n  parameters: {a: [1, 2]}\n  run: echo loss=3\n");
  CHECK(cluster.run({"train"}, project).code == 0);
  const Output compared = cluster.run({"compare", "1"}, project);
  CHECK_MESSAGE(compared.out.find(" los\n") != std::string::npos, compared.all());
  CHECK_MESSAGE(compared.out.find(" -\n") != std::string::npos, compared.all());
  CHECK(facts(cluster.run({"compare", "1", "--json"}, project)).dump().find("\"los\"") != std::string::npos);
  const Output member = cluster.run({"status", "1.1"}, project);
  CHECK_MESSAGE(member.out.find("nothing printed it") != std::string::npos, member.all());
}

TEST_CASE("a set compared by what its members print, across the death of the daemon") {
  Cluster cluster;
  // Each member takes a line from it; open on our side, too, so that nobody finds it closed.
  const fs::path gate = cluster.folder() / "gate";
  REQUIRE(mkfifo(gate.c_str(), 0600) == 0);
  const dtrain::Fd opened(open(gate.c_str(), O_RDWR | O_CLOEXEC));
  const fs::path project = cluster.project(R"yaml(project: grid
train:
  resources: {cpus: 0.1, mem: 32}
  parameters: {rate: [1, 2, 3], epochs: 2}
  metrics: {loss: null, accuracy: "test accuracy: ([0-9.]+)", val/loss: null}
  run: |
    for i in 1 2 3 4; do echo "epoch $i, loss=$((10 * RATE + 5 - i)).5"; done
    read go < )yaml" + gate.string() + R"yaml(
    test $RATE = 2 && exit 0
    echo "test accuracy: 0.$RATE. loss=$RATE.25"
)yaml");
  auto train = cluster.start({"train"}, project);
  for (const char* first : {"loss=14.5", "loss=24.5", "loss=34.5"}) train->wait_for(first);
  // Killed somewhere in the middle of what they print.
  kill_daemon(cluster);
  REQUIRE(write(opened.get(), "\n\n\n", 3) == 3);
  const Output end = train->wait();
  CHECK_MESSAGE(end.code == 0, end.all());

  const Json shown = facts(cluster.run({"status", "1", "--json"}));
  const Json loss = with_id(shown["members"], "1.3")["metrics"]["loss"];
  CHECK(loss == Json{{"last", 3.25},
                     {"min", 3.25},
                     {"max", 34.5},
                     {"best", nullptr},
                     {"count", 5},
                     {"step", nullptr},
                     {"replica", "1.3.train"}});
  CHECK(with_id(shown["members"], "1.2")["metrics"]["loss"]["count"] == 4);
  CHECK(!with_id(shown["members"], "1.2")["metrics"].contains("accuracy"));
  CHECK(shown["metrics"].empty());

  const Output csv = cluster.run({"compare", "1", "--sort", "-accuracy", "--csv"});
  CHECK(csv.code == 0);
  const auto rows = lines_of(csv.out);
  REQUIRE(rows.size() == 4);
  CHECK(rows[0] == "id,state,duration_seconds,epochs,rate,loss,accuracy,val/loss\r");
  CHECK(rows[1].starts_with("1.3,FINISHED,"));
  CHECK(rows[1].ends_with(",2,3,3.25,0.3,\r"));
  CHECK(rows[2].ends_with(",2,1,1.25,0.1,\r"));
  CHECK(rows[3].ends_with(",2,2,21.5,,\r"));
  CHECK(
      cluster.run({"compare", "--csv", "--value", "max"}, project).out.find(",2,1,14.5,0.1,\r\n") !=
      std::string::npos);

  const Json compared = facts(cluster.run({"compare", "1", "--sort", "loss", "--json"}));
  CHECK(compared["experiments"][0]["id"] == "1.1");
  CHECK(compared["experiments"][2]["id"] == "1.2");
  CHECK(compared["same_parameters"] == Json{{"epochs", "2"}});
  CHECK(compared["rate"] == nullptr);

  // In a pipe there are no colours, and nothing is cut.
  const auto table = lines_of(cluster.run({"compare", "1"}).out);
  REQUIRE(table.size() == 5);
  CHECK(table[0] == "All: epochs=2");
  CHECK(table[1].starts_with("ID  STATE      DURATION "));
  CHECK(table[1].ends_with("rate   loss   accuracy val/loss"));
  CHECK(table[4].ends_with("3      3.25   0.3      -"));

  const Output sorted = cluster.run({"status", "1", "--sort", "-loss"});
  CHECK_MESSAGE(has_in_order(sorted.out, {"\n1.2 ", "\n1.3 ", "\n1.1 "}), sorted.out);

  const Output wrong = cluster.run({"compare", "1", "--sort", "acuracy"});
  CHECK(wrong.code == 2);
  CHECK(wrong.err ==
        "dtrain: there is no column 'acuracy'; did you mean 'accuracy'?\n"
        "  hint: --sort takes id, state, duration, rate, loss, accuracy, val/loss\n");

  CHECK(cluster.run({"prune", "1", "--yes"}).code == 0);
  CHECK(cluster.run({"compare", "1"}).code == 2);
}

TEST_CASE("experiments of several sizes: how the rate grew with the workers") {
  Cluster cluster;
  const fs::path project = cluster.project(R"(project: scaling
train:
  framework: tensorflow
  resources: {cpus: 0.1, mem: 32}
  tensorflow: {distributed: {worker: 1, ps: 1}}
  metrics: [samples/s]
  run: |
    test "$DTRAIN_REPLICA" = "$EXPERIMENT_ID.master" && echo "samples/s=$SPEED" || exec sleep 1000
  parameters: {speed: 100}
)");
  for (const auto& [workers, speed] : {std::pair{"1", "100"}, {"2", "180"}, {"4", "300"}}) {
    const Output end = cluster.run(
        {"train", "--set", std::string("train.tensorflow.distributed.worker=") + workers, "-p",
         std::string("speed=") + speed},
        project);
    CHECK_MESSAGE(end.code == 0, end.all());
  }
  const Json compared = facts(cluster.run({"compare", "1", "2", "3", "--json"}));
  CHECK(compared["rate"] == "samples/s");
  CHECK(with_id(compared["experiments"], "1")["efficiency"] == 1.0);
  CHECK(with_id(compared["experiments"], "2")["efficiency"] == 0.9);
  CHECK(with_id(compared["experiments"], "3")["efficiency"] == 0.75);
  CHECK(with_id(compared["experiments"], "3")["speedup"] == 3.0);
  CHECK(with_id(compared["experiments"], "3")["workers"] == 4);
  CHECK(with_id(compared["experiments"], "3")["settings"] == Json{{"worker", "4"}});
  const Output table = cluster.run({"compare", "3", "1"});
  CHECK_MESSAGE(table.out.find(" speed  worker samples/s SPEEDUP EFFICIENCY\n") != std::string::npos, table.out);
  CHECK_MESSAGE(table.out.ends_with(" 100    1      100       1       1\n"), table.out);
}

TEST_CASE("a list of worker counts is a set that compare shows the scaling of") {
  Cluster cluster;
  const fs::path project = cluster.project(R"(project: scaling
train:
  framework: tensorflow
  resources: {cpus: 0.1, mem: 32}
  tensorflow: {distributed: {worker: [1, 2, 4], ps: 1}}
  metrics: [samples/s]
  run: |
    test "$DTRAIN_REPLICA" = "$EXPERIMENT_ID.master" || exec sleep 1000
    case {{ worker }} in 1) speed=100 ;; 2) speed=180 ;; *) speed=300 ;; esac
    echo "samples/s=$speed"
)");
  CHECK(cluster.run({"train"}, project).code == 0);
  const Json compared = facts(cluster.run({"compare", "1", "--json"}));
  for (const auto& [id, workers, efficiency] :
       {std::tuple{"1.1", 1, 1.0}, {"1.2", 2, 0.9}, {"1.3", 4, 0.75}}) {
    const Json member = with_id(compared["experiments"], id);
    CHECK(member["workers"] == workers);
    CHECK(member["efficiency"] == efficiency);
    CHECK(member["parameters"]["worker"] == std::to_string(workers));
  }
  CHECK(facts(cluster.run({"status", "1.3", "--json"}))["replicas"].size() == 5);
}

TEST_CASE("event files below OUTPUT_DIR are metrics, too") {
  Cluster cluster;
  const fs::path events = fs::path(TESTDATA) / "events" / "tensorflow2";
  const fs::path project = cluster.project(R"(project: events
train:
  resources: {cpus: 0.1, mem: 32}
  run: cp -r ')" + events.string() + R"('/. "$OUTPUT_DIR"
)");
  CHECK(cluster.run({"train"}, project).code == 0);
  CHECK(cluster.run({"train", "--set", "train.metrics=[validation/epoch_loss, none]"}, project)
            .code == 0);
  const Json all = facts(cluster.run({"status", "1", "--json"}))["metrics"];
  CHECK(all.size() == 4);
  CHECK(all["train/epoch_accuracy"] == Json{{"last", 0.5},
                                            {"min", 0.0},
                                            {"max", 0.5},
                                            {"best", nullptr},
                                            {"count", 5},
                                            {"step", 4},
                                            {"replica", nullptr}});
  const Json one = facts(cluster.run({"status", "2", "--json"}))["metrics"];
  CHECK(one.size() == 1);
  CHECK(one["validation/epoch_loss"]["step"] == 4);
  CHECK(cluster.run({"status", "2"}).out.find("validation/epoch_loss 0.9 ") != std::string::npos);
}
