// examples/: every file in it is one that dtrain takes, and what the quickstart trains learns.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"

using namespace dtrain::tests;

namespace {

const fs::path kExamples = fs::path(SOURCE_DIR) / "examples";

// The folders with a dtrain.yml, by name.
std::set<std::string> examples() {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(kExamples)) {
    if (fs::exists(entry.path() / "dtrain.yml")) names.insert(entry.path().filename());
  }
  return names;
}

// What `commands` prints with the functions of .cmake/build.sh, ninja's words on its standard input.
std::string shown(const std::string& commands, const std::string& ninja) {
  Command command;
  command.argv = {"bash", "-euo", "pipefail", "-c",
                  "source .cmake/build.sh; printf '%b' \"$1\" | " + commands, "bash", ninja};
  command.directory = SOURCE_DIR;
  const Output output = run(command);
  CHECK_MESSAGE(output.code == 0, output.all());
  return output.out;
}

}  // namespace

TEST_CASE("dtrain finds nothing wrong with any example, and each is told of") {
  Cluster cluster;
  const std::string map = read_file(kExamples / "README.md");
  const std::set<std::string> names = examples();
  CHECK(names.contains("digits"));
  CHECK(names.contains("hello"));
  for (const std::string& name : names) {
    CAPTURE(name);
    const Output check = cluster.run({"check"}, kExamples / name);
    CHECK_MESSAGE(check.code == 0, check.all());
    CHECK(check.out.starts_with("dtrain.yml is fine: "));
    CHECK(check.err.empty());
    CHECK(fs::exists(kExamples / name / "README.md"));
    CHECK(map.find("(" + name + ")") != std::string::npos);
  }
}

// A guess is right for one digit in ten. Of 6000 digits, instead of its 40000, it learns eight in ten at
// least: nine as a rule, but workers that are not in step never do twice the same.
TEST_CASE("what the quickstart trains gets eight of ten new digits right") {
  Cluster cluster;
  const fs::path project = cluster.folder() / "digits";
  fs::create_directories(project);
  fs::copy_file(kExamples / "digits/dtrain.yml", project / "dtrain.yml");
  Command digits;
  digits.argv = {std::string(BIN_DIR) + "/dtrain-engine", "data", "digits", "--train", "20000", "--test", "1000"};
  digits.directory = project;
  const Output drawn = run(digits);
  REQUIRE_MESSAGE(drawn.code == 0, drawn.all());
  CHECK(drawn.out == "20000 digits to learn from in data/train, 1000 to test on in data/test\n");

  const Output train = cluster.run({"train", "--tied"}, project, std::chrono::seconds(180));
  REQUIRE_MESSAGE(train.code == 0, train.all());
  const Json shown = facts(cluster.run({"status", "1", "--json"}));
  CHECK(shown["state"] == "FINISHED");
  for (const char* id : {"1.master", "1.worker.1", "1.worker.2", "1.ps.1"}) {
    CHECK(with_id(shown["replicas"], id)["state"] == "FINISHED");
  }
  // A line an epoch, of the master; and how the script finds the accuracy.
  const std::string lines = cluster.run({"logs", "--raw", "1.master"}, project).out;
  for (int epoch = 1; epoch <= 5; ++epoch) {
    const size_t line = lines.find("epoch=" + std::to_string(epoch) + " ");
    REQUIRE_MESSAGE(line != std::string::npos, lines);
    const std::string text = lines.substr(line, lines.find('\n', line) - line);
    for (const char* key : {" loss=", " accuracy=", " samples_per_second="}) {
      CHECK_MESSAGE(text.find(key) != std::string::npos, text);
    }
    CHECK_MESSAGE((text.find(" left=") != std::string::npos) == (epoch < 5), text);
  }
  const double accuracy = std::stod(lines.substr(lines.rfind(" accuracy=") + 10));
  CHECK(accuracy > 0.8);
  CHECK(fs::file_size(project / "runs/1/model.safetensors") > 100'000);
}

TEST_CASE("a build says how far it is, and on a terminal how long it takes") {
  std::string ninja;
  for (const char* at : {"1/200 0.9", "40/200 20.3", "120/200 60.0", "199/200 99.9", "200/200 101.2"}) {
    ninja += std::string("[") + at + "] Building\nand what a compiler says\n";
  }
  CHECK(shown("show_fifths", ninja) == "20% 40% 60% 80% ");
  CHECK(shown("show_fifths", "ninja: no work to do.\n").empty());
  CHECK(shown("show_steps", "ninja: no work to do.\n").empty());

  const std::string steps = shown("show_steps", ninja);
  CHECK(steps.starts_with("[1/200]\b\b\b\b\b\b\b[40/200] 80 s left\b"));
  CHECK(steps.find("[120/200] 40 s left") != std::string::npos);
  // It ends where it began, with blanks behind.
  CHECK(std::count(steps.begin(), steps.end(), '\b') * 2 == static_cast<long>(steps.size()));
}

TEST_CASE("a build that fails is one that failed, however its words are shown") {
  Command command;
  command.argv = {"bash", "-euo", "pipefail", "-c",
                  "source .cmake/build.sh; ninja() { echo 'FAILED: it'; return 1; }\n"
                  "build_targets . \"$0\" it || echo \"failed: $(cat \"$0\")\""};
  Cluster cluster;
  command.argv.push_back(cluster.folder() / "log");
  command.directory = SOURCE_DIR;
  const Output output = run(command);
  CHECK(output.out == "failed: FAILED: it\n");
}
