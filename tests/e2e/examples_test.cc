// examples/: every file in it is one that dtrain takes, and those of the engine train.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <vector>

#include "tests/support/cluster.h"
#include "tests/support/digits.h"
#include "tests/support/facts.h"
#include "tests/support/skipped.h"

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

// Its dtrain.yml alone, in a project of the cluster's.
fs::path project_of(Cluster& cluster, const std::string& name) {
  return cluster.project(name, {{"dtrain.yml", read_file(kExamples / name / "dtrain.yml")}});
}

// The folders of results: one, or one a member of a set.
std::vector<fs::path> results(const fs::path& run, int members) {
  if (members == 1) return {run};
  std::vector<fs::path> found;
  for (int member = 1; member <= members; ++member) found.push_back(run / std::to_string(member));
  return found;
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
    // Those that draw their data first are told so.
    const bool draws = check.err.starts_with("Warning: there is no 'data/train") && std::ranges::count(check.err, '\n') == 1;
    CHECK_MESSAGE((check.err.empty() || draws), check.all());
    CHECK(fs::exists(kExamples / name / "README.md"));
    CHECK(map.find("(" + name + ")") != std::string::npos);
  }
}

// For one epoch of data that are few, so without learning much.
TEST_CASE("each example of the engine trains as its file says, and leaves a model a member") {
  const std::map<std::string, int> members = {{"lenet-allreduce", 1}, {"mlp-ps-async", 1}, {"gpt-pipeline", 1},
                                              {"gpt-mesh", 1},        {"learning-rates", 5}, {"search", 12},
                                              {"workers", 2}};
  Cluster cluster;
  cluster.own_ports();
  int id = 0;
  for (const std::string& name : examples()) {
    const bool engine = read_file(kExamples / name / "dtrain.yml").find("framework: engine") != std::string::npos;
    if (!engine || name == "digits") continue;  // that is the quickstart's
    CAPTURE(name);
    REQUIRE(members.contains(name));
    const fs::path project = project_of(cluster, name);
    if (name.starts_with("gpt")) {
      fs::create_directories(project / "data");
      write_file(project / "data/train", read_file(fs::path(SOURCE_DIR) / "README.md").substr(0, 8000));
      write_file(project / "data/test", read_file(fs::path(SOURCE_DIR) / "README.md").substr(8000, 2000));
    } else {
      draw_digits(project, "1000", "100");
    }
    const Output train = cluster.run({"train", "--set", "train.engine.epochs=1"}, project);
    CHECK_MESSAGE(train.code == 0, train.all());
    CHECK(train.out.find("epoch=1 ") != std::string::npos);
    const Json shown = facts(cluster.run({"status", std::to_string(++id), "--json"}));
    CHECK(shown["state"] == "FINISHED");
    CHECK(std::max<size_t>(shown["members"].size(), 1) == static_cast<size_t>(members.at(name)));
    for (const Json& member : shown["members"]) CHECK(member["state"] == "FINISHED");
    for (const fs::path& result : results(project / "runs" / std::to_string(id), members.at(name))) {
      CHECK(fs::file_size(result / "model.safetensors") > 100'000);
    }
  }
  CHECK(id == static_cast<int>(members.size()));
}

TEST_CASE("the example of PyTorch trains by two processes, by one, by three, and by two that torchrun starts in each of two") {
  const char* python = std::getenv("DTRAIN_TEST_PYTHON");
  if (python == nullptr) return say_skipped("DTRAIN_TEST_PYTHON names no python with torch");
  if (std::system(("'" + std::string(python) + "' -c 'import torch' 2> /dev/null").c_str()) != 0) {
    return say_skipped(std::string(python) + " has no torch");
  }
  Cluster cluster;
  cluster.own_ports();
  const fs::path project = project_of(cluster, "pytorch-ddp");
  write_file(project / "train.py", read_file(kExamples / "pytorch-ddp/train.py"));
  const std::string run = fmt::format("train.run='{}' train.py --epochs 3", python);
  const Output train = cluster.run({"train", "--set", run}, project);
  REQUIRE_MESSAGE(train.code == 0, train.all());
  const std::string log = cluster.run({"logs", "--raw", "1.master"}, project).out;
  double losses[3] = {};
  for (int epoch = 1; epoch <= 3; ++epoch) {
    const std::string words = fmt::format("epoch={} loss=", epoch);
    REQUIRE_MESSAGE(log.find(words) != std::string::npos, log);
    losses[epoch - 1] = std::stod(log.substr(log.find(words) + words.size()));
  }
  CHECK(log.find(" workers=2") != std::string::npos);
  CHECK(losses[2] < losses[0] / 2);
  CHECK(fs::file_size(project / "runs/1/model.pt") > 1000);

  write_file(project / "job.yaml", read_file(kExamples / "pytorch-ddp/pytorchjob.yaml"));
  const Output manifest = cluster.run({"train", "--no-image", "-f", "job.yaml", "--set", run}, project);
  REQUIRE_MESSAGE(manifest.code == 0, manifest.all());
  CHECK(cluster.run({"logs", "--raw", "2.master"}, project).out == log);

  const Output alone = cluster.run(
      {"train", "--set", run, "--set", "train.pytorch.distributed.worker=1"}, project);
  REQUIRE_MESSAGE(alone.code == 0, alone.all());
  CHECK(cluster.run({"logs", "3"}, project).out.find(" workers=1") != std::string::npos);
  // By which neither the samples nor the batch can be divided.
  const Output three = cluster.run(
      {"train", "--set", run, "--set", "train.pytorch.distributed.worker=3", "--set", "train.resources.cpus=0.5"}, project);
  REQUIRE_MESSAGE(three.code == 0, three.all());

  const std::string torchrun = fmt::format("train.run='{}' -m torch.distributed.run train.py --epochs 1", python);
  // Debian's 1.13 fails to start anything under its own python.
  const std::string starts = fmt::format("'{}' -c 'from torch.distributed.elastic.multiprocessing.api import Std, to_map; "
                                         "to_map(Std.from_str(\"0\"), 1)' 2> /dev/null", python);
  if (std::system(starts.c_str()) != 0) return say_left_out(std::string(python) + "'s torchrun starts nothing");
  const Output four = cluster.run({"train", "--set", torchrun, "--set", "train.pytorch.nproc-per-node=2"}, project);
  REQUIRE_MESSAGE(four.code == 0, four.all());
  CHECK(cluster.run({"logs", "5"}, project).out.find(" workers=4") != std::string::npos);
}

TEST_CASE("the example of MPI trains by ranks of two workers") {
  const char* python = std::getenv("DTRAIN_TEST_PYTHON");
  if (python == nullptr) return say_skipped("DTRAIN_TEST_PYTHON names no python with torch");
  const std::string has = fmt::format("'{}' -c 'import torch, mpi4py.MPI' 2> /dev/null", python);
  if (std::system(has.c_str()) != 0) return say_skipped(std::string(python) + " has no torch, or no mpi4py");
  if (std::system("command -v mpirun.openmpi > /dev/null") != 0) return say_skipped("Open MPI is not installed");
  Cluster cluster;
  cluster.own_ports();
  const fs::path project = project_of(cluster, "mpi-ddp");
  write_file(project / "train.py", read_file(kExamples / "mpi-ddp/train.py"));
  const Output train = cluster.run(
      {"train", "--set", fmt::format("train.run=mpirun.openmpi '{}' train.py --epochs 3", python)}, project);
  REQUIRE_MESSAGE(train.code == 0, train.all());
  CHECK_MESSAGE(train.out.find("epoch=3 ") != std::string::npos, train.out);
  CHECK_MESSAGE(train.out.find(" ranks=2") != std::string::npos, train.out);
  CHECK(fs::file_size(project / "runs/1/model.pt") > 1000);
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
