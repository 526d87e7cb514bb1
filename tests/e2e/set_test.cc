// A grid of hyperparameters: members, concurrency, and one that fails.
#include <doctest/doctest.h>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"

using namespace dtrain::tests;

TEST_CASE("one failing member does not stop the others, and each has its own output") {
  Cluster cluster;
  fs::path project = cluster.project(R"(project: grid
train:
  resources: {cpus: 0.2, mem: 32}
  parameters:
    rate: [1, 2, 3]
  run: test $RATE != 2 && echo {{ rate }} > $OUTPUT_DIR/rate
)");
  Output train = cluster.run({"train"}, project);
  CHECK_MESSAGE(train.code == 1, train.all());

  Json shown = facts(cluster.run({"status", "1", "--json"}));
  CHECK(shown["state"] == "FINISHED");  // any member that finished makes it so
  CHECK(with_id(shown["members"], "1.1")["state"] == "FINISHED");
  CHECK(with_id(shown["members"], "1.2")["state"] == "FAILED");
  CHECK(with_id(shown["members"], "1.3")["state"] == "FINISHED");
  CHECK(with_id(shown["members"], "1.3")["parameters"]["rate"] == "3");

  for (const char* member : {"1.1", "1.3"}) {
    fs::path output = facts(cluster.run({"status", member, "--json"}))["output_dir"];
    CHECK(read_file(output / "rate") == std::string(1, member[2]) + "\n");
  }
  CHECK(cluster.run({"wait", "1.1"}).code == 0);
  CHECK(cluster.run({"wait", "1.2"}).code == 1);
  const Output whole = cluster.run({"wait", "1"});
  CHECK(whole.code == 1);
  CHECK_MESSAGE(whole.out == "1 FINISHED: 1 of 3 members failed\n", whole.all());
}

TEST_CASE("concurrency bounds how many members live at once; one can be killed alone") {
  Cluster cluster;
  fs::path gate = cluster.folder() / "gate";
  fs::path project = cluster.project(R"(project: grid
train:
  resources: {cpus: 0.1, mem: 32}
  parameters:
    n: {range: {min: 1, max: 4, step: 1}}
  concurrency: 2
  run: echo started {{ n }}; test -e )" +
                                     gate.string() +
                                     R"( || exec sleep 1000
)");
  auto train = cluster.start({"train"}, project);
  train->wait_for("started 1");
  train->wait_for("started 2");
  Json shown = facts(cluster.run({"status", "1", "--json"}));
  CHECK(with_id(shown["members"], "1.2")["state"] == "RUNNING");
  CHECK(with_id(shown["members"], "1.3")["state"] == "CREATED");

  // The gate opens before the first place is free, so whoever starts from now on ends by itself.
  write_file(gate, "");
  CHECK(cluster.run({"kill", "1.1"}).code == 0);
  train->wait_for("started 4");
  CHECK(cluster.run({"kill", "1.2"}).code == 0);
  Output end = train->wait();
  CHECK(end.code == 130);

  shown = facts(cluster.run({"status", "1", "--json"}));
  CHECK(cluster.run({"wait", "1"}).out == "1 FINISHED: 2 of 4 members killed\n");
  CHECK(with_id(shown["members"], "1.1")["state"] == "KILLED");
  CHECK(with_id(shown["members"], "1.2")["state"] == "KILLED");
  CHECK(with_id(shown["members"], "1.3")["state"] == "FINISHED");
  CHECK(with_id(shown["members"], "1.4")["state"] == "FINISHED");
  CHECK(shown["state"] == "FINISHED");
}

TEST_CASE("a set that is killed as a whole is KILLED, whatever finished before, and what was to come after it does not begin") {
  Cluster cluster;
  const fs::path project = cluster.project(R"(project: grid
train:
  resources: {cpus: 0.1, mem: 32}
  parameters: {n: [0, 1000]}
  run: echo started {{ n }}; sleep {{ n }}
)");
  auto train = cluster.start({"train"}, project);
  train->wait_for("started 1000");
  CHECK(cluster.run({"wait", "1.1"}).code == 0);
  CHECK(cluster.run({"train", "-d", "--after", "1", "--", "true"}, project).code == 0);
  CHECK(cluster.run({"kill", "1"}).code == 0);
  CHECK(train->wait().code == 130);
  CHECK(cluster.run({"wait", "1"}).out.find("1 KILLED") != std::string::npos);
  CHECK(cluster.run({"wait", "2"}).code != 0);
  const Output list = cluster.run({"status", "-a"});
  CHECK_MESSAGE(list.out.find("Set (2 of 2, 1 killed)") != std::string::npos, list.out);
}

TEST_CASE("of more members than status shows, those that --sort puts first are shown") {
  Cluster cluster;
  const fs::path project = cluster.project(R"(project: grid
train:
  suspend: true
  parameters:
    n: {range: {min: 1, max: 2100, step: 1}}
  run: "true"
)");
  const Output train = cluster.run({"train", "-d"}, project);
  REQUIRE_MESSAGE(train.code == 0, train.all());
  const Json plain = facts(cluster.run({"status", "1", "--json"}));
  CHECK(plain["members_left_out"] > 0);
  const Json sorted = facts(cluster.run({"status", "1", "--sort", "-n", "--json"}));
  CHECK(sorted["members"][0]["parameters"]["n"] == "2100");
  CHECK(sorted["members"].size() == 2100);
  CHECK(sorted["members_left_out"] == 0);
}
