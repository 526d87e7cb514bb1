// Everything that prints facts prints them as JSON too, and without colours or cursors in a pipe.
#include <doctest/doctest.h>

#include <sstream>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"

using namespace dtrain::tests;

TEST_CASE("--json of every command that prints facts is JSON") {
  Cluster cluster;
  fs::path project = cluster.project("project: p\ntrain:\n  run: echo one; echo two\n");
  Json submitted = facts(cluster.run({"train", "-d", "--json"}, project));
  CHECK(submitted["id"] == "1");
  Output waited = cluster.run({"wait", "1", "--json"});
  CHECK(waited.code == 0);
  CHECK(facts(waited)["output_dir"] == submitted["output_dir"]);

  for (std::vector<std::string> command :
       std::vector<std::vector<std::string>>{{"status", "-a"},
                                             {"status", "1"},
                                             {"status", "-a", "-l"},
                                             {"hosts"},
                                             {"daemon", "status"},
                                             {"why", "1"},
                                             {"kill", "1"},
                                             {"version"},
                                             {"check"},
                                             {"monitor", "--once", "1"},
                                             {"output", "ls", "1"}}) {
    command.push_back("--json");
    Output output = cluster.run(command, project);
    CHECK_MESSAGE(Json::accept(output.out), command[0] << ": " << output.all());
    CHECK_MESSAGE(output.code == 0, command[0] << ": " << output.all());
  }

  Output logs = cluster.run({"logs", "1", "--json"}, project);
  std::istringstream lines(logs.out);
  bool saw_two = false;
  for (std::string line; std::getline(lines, line);) {
    Json entry = Json::parse(line, nullptr, false);
    REQUIRE_MESSAGE(!entry.is_discarded(), line);
    saw_two = saw_two || line.find("two") != std::string::npos;
  }
  CHECK(saw_two);

  Output error = cluster.run({"status", "5", "--json"}, project);
  CHECK(error.code != 0);
  CHECK_MESSAGE(Json::accept(error.out + error.err), error.all());
}

TEST_CASE("check --json lists every mistake with its place, and returns 2") {
  Cluster cluster;
  fs::path project = cluster.project(
      "project: p\ntrain:\n  resources: {cpu: 2}\n  parameters: {a: {range: {min: 5, max: 1, step: "
      "0}}}\n  run: echo\n");
  Output output = cluster.run({"check", "--json"}, project);
  CHECK(output.code == 2);
  CHECK_MESSAGE(output.err.empty(), output.err);
  REQUIRE(Json::accept(output.out));
  Json mistakes = Json::parse(output.out)["mistakes"];
  REQUIRE(mistakes.size() == 3);
  CHECK(mistakes[0] == Json{{"file", "dtrain.yml"},
                            {"line", 3},
                            {"column", 15},
                            {"message", "train.resources.cpu: unknown key"},
                            {"hint", "did you mean 'cpus'?"}});
  CHECK(mistakes[1]["line"] == 4);
  CHECK(mistakes[2]["line"] == 4);
}

TEST_CASE("check --json tells what the text tells beside mistakes") {
  Cluster cluster;
  fs::path project = cluster.project(
      "project: p\ntrain:\n  framework: engine\n  engine: {model: mlp, data: {train: digits}}\n"
      "  parameters: {unused: [1, 2]}\n");
  Output text = cluster.run({"check"}, project);
  Output output = cluster.run({"check", "--json"}, project);
  CHECK_MESSAGE(output.code == 0, output.all());
  CHECK_MESSAGE(output.err.empty(), output.err);
  REQUIRE(Json::accept(output.out));
  const Json json = Json::parse(output.out);
  REQUIRE(json["warnings"].size() == 2);
  const std::string warning = json["warnings"][0], data = json["warnings"][1];
  CHECK(warning.find("unused") != std::string::npos);
  CHECK(text.err.find("Warning: " + warning) != std::string::npos);
  CHECK_MESSAGE(data.starts_with("there is no 'digits' in "), data);
  CHECK(text.err.find("Warning: " + data) != std::string::npos);
}

TEST_CASE("train --json says nothing for people while all goes well") {
  Cluster cluster;
  fs::path project = cluster.project("quiet", {{"dtrain.yml", "project: p\ntrain: {run: echo}\n"},
                                               {"__pycache__/m.pyc", "left out"}});
  Output train = cluster.run({"train", "--json"}, project);
  CHECK(train.code == 0);
  CHECK_MESSAGE(train.err.empty(), train.err);
  CHECK(cluster.run({"train", "-d", "--json"}, project).err.empty());
}

TEST_CASE("in a pipe there are no colours, and each line carries ID and UTC time") {
  Cluster cluster;
  fs::path project = cluster.project("project: p\ntrain:\n  run: printf 'a\\rb\\n'\n");
  Output train = cluster.run({"train"}, project);
  CHECK(train.code == 0);
  CHECK(train.all().find('\x1b') == std::string::npos);
  CHECK(train.out.find("1.train | [20") != std::string::npos);
  CHECK(train.out.find("Z] b\n") != std::string::npos);
  CHECK(train.out.find("--> RUNNING") != std::string::npos);
  CHECK(train.out.find("--> FINISHED") != std::string::npos);
}
