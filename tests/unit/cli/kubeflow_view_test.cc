#include "cli/kubeflow_view.h"

#include <doctest/doctest.h>

#include "tests/unit/cli/now.h"

namespace dtrain::cli {
namespace {

TEST_CASE("experiments are a line each in kubectl's columns and Kubeflow's words") {
  pb::ListReply reply;
  const auto add = [&](const char* id, const char* name, const char* state, uint64_t age_ms) {
    pb::ExperimentInfo& info = *reply.add_experiments();
    info.set_id(id);
    info.set_project("mnist");
    info.set_name(name);
    info.set_state(state);
    info.set_submitted_unix_ms(kNow - age_ms);
  };
  add("9", "", "BUILDING", 5'000);
  add("8", "baseline", "RUNNING", 130'000);
  add("7", "", "SUSPENDED", 4 * 3'600'000);
  add("6.1", "", "FINISHED", 3 * 86'400'000);
  add("5", "", "KILLED", 3 * 86'400'000 + 7'200'000);
  CHECK(render_kubeflow(reply, {{}, kNow, false}) ==
        "NAME                   STATE        AGE\n"
        "mnist-9                Created      5s\n"
        "baseline-8             Running      2m10s\n"
        "mnist-7                Suspended    4h\n"
        "mnist-6.1              Succeeded    3d\n"
        "mnist-5                Failed       3d2h\n");
}

TEST_CASE("replicas are pods under Kubeflow's names, with those they have here") {
  pb::ShowReply reply;
  reply.mutable_experiment()->set_id("4");
  reply.mutable_experiment()->set_project("mnist");
  reply.set_spec_yaml("project: mnist\ntrain:\n  run: a\n  framework: tensorflow\n  tensorflow: {tensorboard: true, distributed: {worker: 2, ps: 1}}\n");
  const auto add = [&](const char* id, const char* state, uint64_t age_ms) {
    pb::ReplicaInfo* replica = reply.add_replicas();
    replica->set_id(id);
    replica->set_state(state);
    if (age_ms > 0) replica->set_started_unix_ms(kNow - age_ms);
  };
  add("4.master", "RUNNING", 130'000);
  add("4.worker.1", "STARTING", 0);
  add("4.ps.1", "FINISHED", 5'000);
  add("4.tensorboard", "RUNNING", 5'000);
  IdPattern all;
  all.experiment = {4, 0};
  CHECK(render_kubeflow_replicas(reply, all, {{}, kNow, false}) ==
        "NAME                   STATUS       AGE      REPLICA\n"
        "mnist-4-worker-0       Running      2m10s    4.master\n"
        "mnist-4-worker-1       Pending               4.worker.1\n"
        "mnist-4-ps-0           Succeeded    5s       4.ps.1\n");
  all.role = Role::Ps;
  CHECK(render_kubeflow_replicas(reply, all, {{}, kNow, false}) ==
        "NAME                   STATUS       AGE      REPLICA\n"
        "mnist-4-ps-0           Succeeded    5s       4.ps.1\n");
  reply.clear_replicas();
  CHECK(render_kubeflow_replicas(reply, all, {{}, kNow, false}).empty());
}

TEST_CASE("an age is as coarse as it is long") {
  const std::pair<uint64_t, const char*> ages[] = {{0, "0s"},           {119, "119s"},       {120, "2m"},         {599, "9m59s"},
                                                   {600, "10m"},        {10'799, "179m"},    {10'800, "3h"},      {28'799, "7h59m"},
                                                   {28'800, "8h"},      {172'799, "47h"},    {172'800, "2d"},     {691'199, "7d23h"},
                                                   {691'200, "8d"},     {63'071'999, "729d"}, {63'072'000, "2y"}};
  for (const auto& [seconds, text] : ages) CHECK(kubernetes_age(seconds * 1000) == text);
}

}  // namespace
}  // namespace dtrain::cli
