#include "cli/kubeflow_names.h"

#include <doctest/doctest.h>

namespace dtrain::cli {
namespace {

// What is shown of experiment 4, with what stands in its `train` besides `run`.
pb::ShowReply shown_with(const std::string& train) {
  pb::ShowReply shown;
  shown.mutable_experiment()->set_id("4");
  shown.mutable_experiment()->set_project("dist-mnist");
  shown.set_spec_yaml("project: dist-mnist\ntrain:\n  run: a\n" + train);
  return shown;
}

// What a text is, as a command takes it.
std::string meant(const std::string& text, const pb::ShowReply& shown) {
  std::string wrong;
  for (const KubeflowName& name : meanings_of(text)) {
    const auto id = id_of(name, shown);
    if (id.ok()) return *id;
    if (wrong.empty()) wrong = id.error().message + "; " + id.error().hint;
  }
  return wrong.empty() ? "no name" : wrong;
}

TEST_CASE("a job's name with its ID is the experiment, and that of a pod the replica") {
  const pb::ShowReply tensorflow =
      shown_with("  framework: tensorflow\n  tensorflow: {chief-task: master, distributed: {chief: 1, worker: 2, ps: 1, evaluator: 1}}\n");
  CHECK(meant("dist-mnist-4", tensorflow) == "4");
  CHECK(meant("dist-mnist-4-master-0", tensorflow) == "4.chief");
  CHECK(meant("dist-mnist-4-worker-0", tensorflow) == "4.worker.1");
  CHECK(meant("dist-mnist-4-worker-1", tensorflow) == "4.worker.2");
  CHECK(meant("dist-mnist-4-ps-0", tensorflow) == "4.ps.1");
  CHECK(meant("dist-mnist-4-evaluator-0", tensorflow) == "4.evaluator.1");
  CHECK(meant("dist-mnist-4-worker-2", tensorflow) == "dist-mnist-4 has no worker-2; it has: master-0, worker-0, worker-1, ps-0, evaluator-0");
  CHECK(meant("mnist-4-worker-0", tensorflow).starts_with("experiment 4 is 'dist-mnist-4', not 'mnist-4'; "));

  // The first worker is the master where nobody else is.
  const pb::ShowReply workers = shown_with("  framework: tensorflow\n  tensorflow: {distributed: {worker: 2}}\n");
  CHECK(meant("dist-mnist-4-worker-0", workers) == "4.master");
  CHECK(meant("dist-mnist-4-worker-1", workers) == "4.worker.1");

  const pb::ShowReply torch = shown_with("  framework: pytorch\n  pytorch: {distributed: {worker: 3}}\n");
  CHECK(meant("dist-mnist-4-master-0", torch) == "4.master");
  CHECK(meant("dist-mnist-4-worker-1", torch) == "4.worker.2");
  const pb::ShowReply alike = shown_with("  framework: pytorch\n  completion: all-workers\n  pytorch: {distributed: {worker: 3}}\n");
  CHECK(meant("dist-mnist-4-worker-0", alike) == "4.master");
  CHECK(meant("dist-mnist-4-master-0", alike) == "dist-mnist-4 has no master-0; it has: worker-0, worker-1, worker-2");
  const pb::ShowReply elastic = shown_with("  framework: pytorch\n  pytorch: {distributed: {worker: 3, elastic: {min: 2}}}\n");
  CHECK(meant("dist-mnist-4-worker-2", elastic) == "4.worker.2");

  const pb::ShowReply mpi = shown_with("  framework: mpi\n  mpi: {distributed: {worker: 2}}\n");
  CHECK(meant("dist-mnist-4-launcher-0", mpi) == "4.launcher");
  CHECK(meant("dist-mnist-4-worker-1", mpi) == "4.worker.2");
}

TEST_CASE("a job may be called like a replica, and a member has a name too") {
  pb::ShowReply shown = shown_with("");
  shown.mutable_experiment()->set_name("try-9-worker");
  CHECK(meant("try-9-worker-4", shown) == "4");
  shown.mutable_experiment()->set_id("4.2");
  shown.mutable_experiment()->set_name("try");
  CHECK(meant("try-4.2", shown) == "4.2");
}

TEST_CASE("a name without a number is told the newest experiment that is called so") {
  pb::ListReply all;
  const auto add = [&](const char* id, const char* project, const char* name) {
    pb::ExperimentInfo* info = all.add_experiments();
    info->set_id(id);
    info->set_project(project);
    info->set_name(name);
  };
  add("2", "dist-mnist", "");
  add("3", "dist-mnist", "");
  add("3.1", "dist-mnist", "");
  add("4", "dist-mnist", "try-2");
  const auto hint = [&](const char* text) {
    const auto lacking = lacks_number(text, all);
    return lacking ? lacking->hint : "";
  };
  CHECK(lacks_number("dist-mnist", all)->message == "'dist-mnist' may be of several experiments, and lacks the number of one");
  CHECK(hint("dist-mnist") == "the newest that is called so is 3: dist-mnist-3");
  CHECK(hint("dist-mnist-worker-0") == "the newest that is called so is 3: dist-mnist-3-worker-0");
  CHECK(hint("try-2") == "the newest that is called so is 4: try-2-4");
  CHECK(hint("try-2-ps-1") == "the newest that is called so is 4: try-2-4-ps-1");
  for (const char* text : {"mnist", "dist", "dist-mnist-3-worker-0", "dist-mnist-worker", ""}) CHECK(hint(text).empty());
}

TEST_CASE("a user before an ID, as RiseML has it, is dropped") {
  for (const char* text : {".root.4", ".anna-b.4", ".j.doe.4", "j.doe.4"}) CHECK(without_user(text, "j.doe") == "4");
  CHECK(without_user(".root.4.worker.1", "anna") == "4.worker.1");
  CHECK(without_user("root.4.2.ps.1", "root") == "4.2.ps.1");
  for (const char* text : {"", ".", "4", "4.2", "4.worker.1", ".4", "worker.1", "ps.1", "mnist.3", "model.pt", "a/model.4", "root.", "root.x", "root.4-6"}) {
    CHECK(without_user(text, "root") == text);
  }
}

TEST_CASE("what is an ID, a range or a file is no name") {
  for (const char* text : {"4", "4.worker.1", "4-9", "4.1-4.6", "", "-", "mnist", "mnist-", "-4", "mnist-04", "mnist-worker-0x", "model-0.pt"}) {
    CAPTURE(text);
    CHECK(meanings_of(text).empty());
  }
}

}  // namespace
}  // namespace dtrain::cli
