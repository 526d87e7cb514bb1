// TensorBoard beside experiments, the real package: what it serves is asked over HTTP.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"
#include "tests/support/package_index.h"
#include "tests/support/skipped.h"

using namespace dtrain::tests;

namespace {

constexpr std::chrono::minutes kBuild{5};

// Writes a curve with TensorBoard's own writer, says so, and waits for somebody to open the gate.
constexpr const char* kTrain = R"(import os, sys
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter(os.environ["OUTPUT_DIR"])
for step in range(5):
    value = summary_pb2.Summary.Value(tag="loss", simple_value=1 / (1 + step))
    writer.add_event(event_pb2.Event(wall_time=step, step=step,
                                     summary=summary_pb2.Summary(value=[value])))
writer.close()
print("written", flush=True)
open(sys.argv[1]).read()
)";

fs::path gate_of(Cluster& cluster, const std::string& name) {
  const fs::path gate = cluster.folder() / name;
  REQUIRE(mkfifo(gate.c_str(), 0600) == 0);
  return gate;
}

fs::path project(Cluster& cluster, const std::string& more, const std::string& run) {
  return cluster.project("p", {{"train.py", kTrain},
                               {"dtrain.yml", fmt::format(R"(project: p
train:
  framework: tensorflow
  resources: {{cpus: 0.1, mem: 64}}
  install: [pip install tensorboard 'setuptools<81']
  tensorflow: {{tensorboard: true}}
{}  run: {}
)",
                                                          more, run)}});
}

std::string address_of(Cluster& cluster, const std::string& id) {
  const Output said = cluster.run({"tensorboard", id}, {}, kBuild);
  REQUIRE_MESSAGE(said.code == 0, said.all());
  REQUIRE(said.out.starts_with("http://127.0.0.1:"));
  return said.out.substr(0, said.out.size() - 1);
}

// What the page at this address would be told; "" when nobody answers. TensorBoard reads the files
// each few seconds and tells nobody: a question is repeated until its answer holds `until`.
std::string ask(const std::string& address, const std::string& path, const std::string& until) {
  Command command;
  command.argv = {"python3", "-c", R"(
import sys, time, urllib.request
address, until = sys.argv[1:]
while True:
    try:
        answer = urllib.request.urlopen(address).read().decode()
    except OSError:
        sys.exit()
    if until in answer:
        break
    time.sleep(0.2)
print(answer)
)",
                  address + path, until};
  return run(command).out;
}

void check_over(Cluster& cluster, const std::string& board) {
  const Output shown = cluster.run({"status", board});
  CHECK_MESSAGE(shown.all().find("ended with the experiment") != std::string::npos, shown.all());
}

}  // namespace

TEST_CASE("a TensorBoard shows an experiment while it runs, and another one when it is over") {
  Cluster cluster;
  if (!index_answers(cluster)) return say_skipped("no package index answers");
  const fs::path gate = gate_of(cluster, "gate");
  const fs::path here = project(cluster, "", "python train.py " + gate.string());
  auto train = cluster.start({"train"}, here);
  train->wait_for("TensorBoard: http://", kBuild);
  const std::string address = address_of(cluster, "1");
  CHECK(ask(address, "data/plugin/scalars/tags", "loss").find("loss") != std::string::npos);
  const Output shown = cluster.run({"status", "1"});
  CHECK_MESSAGE(shown.out.find("TensorBoard:  " + address) != std::string::npos, shown.out);
  write_file(gate, "go");
  CHECK(train->wait(kBuild).code == 0);
  check_over(cluster, "1.tensorboard");
  CHECK(ask(address, "", "").empty());

  const std::string again = address_of(cluster, "1");
  CHECK(ask(again, "data/plugin/scalars/tags", "loss").find("loss") != std::string::npos);
  CHECK(address_of(cluster, "1") == again);
  CHECK(cluster.run({"tensorboard", "1"}).err.find(" is ") == std::string::npos);   // what it once waited for
  CHECK(address_of(cluster, "2") == again);   // what shows another one is not shown itself
  CHECK(facts(cluster.run({"status", "2", "--json"}))["name"] == "TensorBoard of 1");
  CHECK(cluster.run({"kill", "2"}).code == 0);
  CHECK(cluster.run({"wait", "2"}).code == 130);
  CHECK(cluster.run({"status", "3"}).code == 2);
  address_of(cluster, "2");
  CHECK(facts(cluster.run({"status", "3", "--json"}))["name"] == "TensorBoard of 1");
}

TEST_CASE("the members of a set share a TensorBoard, which ends after the last of them") {
  Cluster cluster;
  if (!index_answers(cluster)) return say_skipped("no package index answers");
  const std::vector<fs::path> gates = {gate_of(cluster, "gate-a"), gate_of(cluster, "gate-b")};
  const std::string gate = (cluster.folder() / "gate-{{ which }}").string();
  const fs::path here =
      project(cluster, "  parameters: {which: [a, b]}\n", "\"python train.py " + gate + "\"");
  auto train = cluster.start({"train"}, here);
  train->wait_for("1.tensorboard");
  const std::string address = address_of(cluster, "1");
  CHECK(ask(address, "data/plugin/scalars/tags", "\"2\"").find("\"1\"") != std::string::npos);
  write_file(gates[0], "go");
  CHECK(cluster.run({"wait", "1.1"}).code == 0);
  CHECK(address_of(cluster, "1") == address);
  write_file(gates[1], "go");
  CHECK(train->wait(kBuild).code == 0);
  check_over(cluster, "1.tensorboard");
  CHECK(cluster.processes("train.py").empty());
}

TEST_CASE("a TensorBoard that is started for an experiment is bound to none of its hosts") {
  Cluster cluster;
  const fs::path here = cluster.project("project: p\ntrain: {hosts: \"*\", resources: {cpus: 0.1, mem: 32}, run: 'true'}\n");
  REQUIRE(cluster.run({"train"}, here).code == 0);
  auto board = cluster.start({"tensorboard", "1"}, here);
  board->wait_for("Experiment 2 is the TensorBoard of 1");
  const std::string yaml = facts(cluster.run({"status", "2", "--json"}))["spec_yaml"];
  CHECK_MESSAGE(yaml.find("hosts:") == std::string::npos, yaml);
  CHECK(cluster.run({"kill", "2", "--force"}).code == 0);
  CHECK(board->wait().code != 0);
}

TEST_CASE("who waits for a TensorBoard is told what that waits for") {
  Cluster cluster;
  const fs::path here = cluster.project("project: p\ntrain: {resources: {cpus: 0.1, mem: 32}, run: 'true'}\n");
  REQUIRE(cluster.run({"train"}, here).code == 0);
  const auto hosts = facts(cluster.run({"hosts", "--json"}))["hosts"];
  const std::string all = fmt::format("{}", hosts[0]["cpus"].get<double>());
  auto training = cluster.start({"train", "--tied", "--cpus", all, "--mem", "32MiB", "--", "sh", "-c", "echo it runs; sleep 1000"}, here);
  training->wait_for("it runs");
  auto board = cluster.start({"tensorboard", "1"}, here);
  board->wait_for("3 is PENDING: needs 0.1 cpus on one host");
  CHECK(cluster.run({"kill", "3"}).code == 0);
  CHECK(board->wait().code != 0);
  training->signal(SIGTERM);
  training->wait();
}

TEST_CASE("a python without TensorBoard says so, and the training goes on") {
  Cluster cluster;
  const fs::path gate = gate_of(cluster, "gate");
  const fs::path here = cluster.project("p", {{"dtrain.yml", fmt::format(R"(project: p
train:
  framework: tensorflow
  resources: {{cpus: 0.1, mem: 64}}
  tensorflow: {{tensorboard: true}}
  env: {{PYTHONPATH: .}}
  run: cat {}
)",
                                                                         gate.string())},
                                              {"tensorboard.py", "raise ImportError('not here')"}});
  auto train = cluster.start({"train"}, here);
  train->wait_for("has no TensorBoard (not here)");
  train->wait_for("--> FAILED");
  write_file(gate, "go");
  const Output output = train->wait();
  CHECK(output.code == 0);
  CHECK_MESSAGE(output.all().find("1 finished") != std::string::npos, output.all());
  CHECK(facts(cluster.run({"status", "1", "--json"}))["replicas"][1]["state"] == "FAILED");
}
