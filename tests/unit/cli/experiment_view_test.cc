#include "cli/experiment_view.h"

#include <doctest/doctest.h>
#include <stdlib.h>
#include <time.h>

#include "schema/spec.h"
#include "tests/unit/cli/now.h"

namespace dtrain::cli {
namespace {

pb::ShowReply failed_gang() {
  setenv("TZ", "UTC", 1);
  tzset();
  pb::ShowReply reply;
  pb::ExperimentInfo* info = reply.mutable_experiment();
  info->set_id("4");
  info->set_project("ai-toaster");
  info->set_state("FAILED");
  info->set_reason("4.master: exit code 3");
  info->set_exit_code(3);
  info->set_framework("tensorflow");
  info->set_submitted_unix_ms(kNow - 200'000);
  info->set_started_unix_ms(kNow - 184'000);
  info->set_finished_unix_ms(kNow);
  info->set_attempt(2);
  reply.set_output_dir("/out/4");
  reply.set_spec_yaml(
      "project: ai-toaster\ntrain:\n  framework: tensorflow\n  parameters: {lr: 0.1}\n"
      "  tensorflow: {distributed: {worker: 1, ps: 1}}\n  run: python t.py {{ lr }}\n");
  pb::ReplicaInfo* master = reply.add_replicas();
  master->set_id("4.master");
  master->set_state("FAILED");
  master->set_reason("exit code 3");
  master->set_exited(true);
  master->set_exit_code(3);
  master->set_started_unix_ms(kNow - 184'000);
  master->set_finished_unix_ms(kNow);
  master->mutable_seat()->set_host_name("node");
  master->mutable_seat()->set_port(20'001);
  pb::ReplicaInfo* ps = reply.add_replicas();
  ps->set_id("4.ps.1");
  ps->set_state("FINISHED");
  ps->set_reason("ended with the experiment");
  ps->set_exited(true);
  ps->set_exit_code(143);
  ps->set_started_unix_ms(kNow - 184'000);
  ps->set_finished_unix_ms(kNow);
  for (int i = 0; i < 14; ++i) {
    pb::StateEvent* event = reply.add_events();
    event->set_id("4.ps.1");
    event->set_state("STOPPING");
    event->set_time_unix_ms(kNow);
  }
  return reply;
}

TEST_CASE("commands of several lines leave no empty ones between") {
  pb::ShowReply reply = failed_gang();
  reply.set_spec_yaml("project: p\ntrain:\n  run:\n    - |\n      echo a\n      echo b\n    - echo c\n    - |\n      d\n");
  const std::string text = render_experiment(reply, {{}, kNow + 60'000, false});
  CHECK_MESSAGE(text.find("Run Commands: echo a\n              echo b\n              echo c\n              d\nOutput:") !=
                    std::string::npos,
                text);
}

TEST_CASE("hosts of one name are told apart by what begins their IDs") {
  pb::ShowReply reply = failed_gang();
  reply.mutable_replicas(0)->mutable_seat()->set_host_id("0123456789abcdef");
  reply.mutable_replicas(1)->mutable_seat()->set_host_name("node");
  reply.mutable_replicas(1)->mutable_seat()->set_host_id("0123456789abcdef");
  const View view{{}, kNow, false};
  CHECK(render_experiment(reply, view).find("node (") == std::string::npos);
  reply.mutable_replicas(1)->mutable_seat()->set_host_id("fedcba9876543210");
  const std::string text = render_experiment(reply, view);
  CHECK_MESSAGE(text.find("node (01234567)") != std::string::npos, text);
  CHECK_MESSAGE(text.find("node (fedcba98)") != std::string::npos, text);
  const auto one = render_replicas(reply, parse_id_pattern("4.master").value(), view);
  REQUIRE(one.ok());
  CHECK_MESSAGE(one->find("Host:           node (01234567)\n") != std::string::npos, *one);
}

TEST_CASE("fields, replicas, the last events") {
  const std::string text = render_experiment(failed_gang(), {{}, kNow + 60'000, false});
  CHECK(
      text.starts_with("ID:           4\n"
                       "Type:         Experiment\n"
                       "Project:      ai-toaster\n"
                       "State:        ✗ FAILED\n"
                       "Reason:       4.master: exit code 3\n"
                       "Submitted:    4 minutes ago (2023-11-14T22:10:00Z)\n"
                       "Started:      4 minutes ago (2023-11-14T22:10:16Z)\n"
                       "Finished:     1 minute ago (2023-11-14T22:13:20Z)\n"
                       "Duration:     3m 4s\n"
                       "Exit Code:    3\n"
                       "Attempt:      2\n"
                       "Framework:    tensorflow\n"));
  CHECK(text.find("Run Commands: python t.py 0.1\n") != std::string::npos);
  CHECK(text.find("Output:       /out/4\n\n"
                  "REPLICA     STATE      HOST   PORT  STARTED  DURATION EXIT REASON\n"
                  "4.master    ✗ FAILED   node   20001 22:10:16 3m 4s    3\n"
                  "4.ps.1      ✓ FINISHED              22:10:16 3m 4s    143  ended with the "
                  "experiment\n") != std::string::npos);
  CHECK(text.find("\nEvents:\n  (2 earlier: -l)\n") != std::string::npos);
  CHECK(text.find("Spec:") == std::string::npos);
}

TEST_CASE("of one that failed by its program's own doing the log's last line that isn't set in") {
  Why why = find_why(failed_gang());
  const auto shown = [&](std::vector<std::string> lines, size_t width = 0) {
    why.log_lines = std::move(lines);
    const std::string text = render_experiment(failed_gang(), {{width > 0, false, width, 24}, kNow, false}, why);
    const size_t reason = text.find("Reason:"), log = text.find("Log:");
    REQUIRE(log < text.find("Submitted:"));
    const size_t from = text.find('\n', reason) + 1;
    return text.substr(from, log - from);
  };
  CHECK(shown({"Traceback:", "  File \"t.py\", line 3", "ValueError: no data"}) == "Last Line:    ValueError: no data\n");
  CHECK(shown({"step 1", "dtrain-engine: no labels", "  draw them again", "======"}) ==
        "Last Line:    dtrain-engine: no labels\n");
  CHECK(shown({"  all", "  set in"}) == "Last Line:      set in\n");
  CHECK(shown({}).empty());
  CHECK(shown({"ValueError: there are no such labels"}, 40) == "Last Line:    ValueError: there are n...\n");
}

TEST_CASE("one that failed has the hint that why has") {
  pb::ShowReply reply = failed_gang();
  reply.mutable_experiment()->set_reason("4.master: exit code 127");
  const std::string text = render_experiment(reply, {{}, kNow, false}, find_why(reply));
  CHECK_MESSAGE(text.find("\nHint:         no such command was found: PATH is that of whoever started the daemon") != std::string::npos, text);
}

TEST_CASE("-l shows everything") {
  const std::string text = render_experiment(failed_gang(), {{}, kNow, true});
  CHECK(text.find("earlier") == std::string::npos);
  CHECK(text.find("\nSpec:\nproject: ai-toaster\n") != std::string::npos);
  CHECK(text.find("MEM PEAK") != std::string::npos);
}

TEST_CASE("a spec from a newer dtrain does not hide the rest") {
  auto reply = failed_gang();
  reply.set_spec_yaml("from: the future\n");
  CHECK(render_experiment(reply, {{}, kNow, false}).find("4.ps.1") != std::string::npos);
}

TEST_CASE("one replica in detail, a role as a table, none as an error") {
  const auto reply = failed_gang();
  const auto one = render_replicas(reply, parse_id_pattern("4.master").value(), {{}, kNow, false});
  REQUIRE(one.ok());
  CHECK(one.value().starts_with("ID:             4.master\nType:           Replica\n"));
  CHECK(one.value().find("Log:            dtrain logs 4.master\n") != std::string::npos);
  const auto none = render_replicas(reply, parse_id_pattern("4.worker.7").value(), {});
  REQUIRE(!none.ok());
  CHECK(none.error().message == "there is no replica 4.worker.7");
  CHECK(none.error().hint == "it has 4.master, 4.ps.1");
}

void set_metric(pb::ExperimentInfo& info, const std::string& name, double last) {
  pb::Metric* metric = info.add_metrics();
  metric->set_name(name);
  metric->set_last(last);
  metric->set_minimum(last - 1);
  metric->set_maximum(last + 1);
  metric->set_count(12);
  metric->set_replica(info.id() + ".master");
}

TEST_CASE("metrics of one experiment, and of what they are known") {
  pb::ShowReply reply = failed_gang();
  pb::ExperimentInfo& info = *reply.mutable_experiment();
  set_metric(info, "loss", 0.123456);
  set_metric(info, "validation/epoch_loss", 2);
  info.mutable_metrics(1)->clear_replica();
  info.mutable_metrics(1)->set_step(4000);
  const std::string text = render_experiment(reply, {{}, kNow, false});
  CHECK(text.find("Output:       /out/4\n\n"
                  "METRIC                LAST       MIN        MAX        COUNT STEP  FROM\n"
                  "loss                  0.12346    -0.87654   1.1235     12          4.master\n"
                  "validation/epoch_loss 2          1          3          12    4000  event files\n"
                  "\nREPLICA ") != std::string::npos);
  const std::string narrow = render_experiment(reply, {{true, false, 44, 24}, kNow, false});
  CHECK(narrow.find("METRIC                LAST\n"
                    "loss                  0.12346\n") != std::string::npos);
}

TEST_CASE("members have a column for each metric; a narrow screen does without the last") {
  pb::ShowReply reply;
  reply.mutable_experiment()->set_id("5");
  reply.mutable_experiment()->set_members(2);
  for (const char* id : {"5.1", "5.2"}) {
    pb::ExperimentInfo* member = reply.add_members();
    member->set_id(id);
    member->set_state("FINISHED");
    (*member->mutable_parameters())["lr"] = "0.1";
  }
  set_metric(*reply.mutable_members(0), "loss", 0.5);
  set_metric(*reply.mutable_members(0), "accuracy", 1);
  set_metric(*reply.mutable_members(1), "accuracy", 0);
  CHECK(render_experiment(reply, {{}, kNow, false})
            .find("ID     STATE      STARTED     DURATION  PARAMS         loss   accuracy REASON\n"
                  "5.1    ✓ FINISHED                       lr=0.1         0.5    1\n"
                  "5.2    ✓ FINISHED                       lr=0.1         -      0\n") !=
        std::string::npos);
  CHECK(render_experiment(reply, {{true, false, 41, 24}, kNow, false})
            .find("ID     STATE      PARAMS         loss\n"
                  "5.1    ✓ FINISHED lr=0.1         0.5\n"
                  "5.2    ✓ FINISHED lr=0.1         -\n") != std::string::npos);
}

TEST_CASE("members show what tells them apart, on narrow screens too") {
  pb::ShowReply reply;
  reply.mutable_experiment()->set_id("5");
  reply.mutable_experiment()->set_members(2);
  for (const char* id : {"5.1", "5.2"}) {
    pb::ExperimentInfo* member = reply.add_members();
    member->set_id(id);
    member->set_state("FINISHED");
    member->set_started_unix_ms(kNow - 3000);
    member->set_finished_unix_ms(kNow);
    auto& parameters = *member->mutable_parameters();
    parameters["layers"] = "2";
    parameters["learning-rate"] = "0.0001";
    parameters["width"] = member->id().substr(2);
    set_metric(*member, "loss", 0.5);
  }
  CHECK(render_experiment(reply, {{true, false, 80, 24}, kNow, false})
            .find("ID     STATE      STARTED       DURATION  PARAMS         loss   REASON\n"
                  "5.1    ✓ FINISHED 3 seconds ago 3 seconds width=1        0.5\n") !=
        std::string::npos);
  CHECK(render_experiment(reply, {{true, false, 40, 24}, kNow, false})
            .find("ID     STATE      PARAMS         loss\n"
                  "5.1    ✓ FINISHED width=1        0.5\n"
                  "5.2    ✓ FINISHED width=2        0.5\n") != std::string::npos);
  for (pb::ExperimentInfo& member : *reply.mutable_members()) {
    (*member.mutable_parameters())["depth-of-it-all"] = member.id();
  }
  CHECK(render_experiment(reply, {{true, false, 50, 24}, kNow, false})
            .find("5.2    ✓ FINISHED depth-of-it-all=5.2, width=2\n") != std::string::npos);
}

TEST_CASE("a set shows its members with their parameters") {
  pb::ShowReply reply;
  reply.mutable_experiment()->set_id("5");
  reply.mutable_experiment()->set_state("RUNNING");
  reply.mutable_experiment()->set_members(2);
  reply.mutable_experiment()->set_members_running(1);
  reply.mutable_experiment()->set_members_failed(1);
  pb::ExperimentInfo* member = reply.add_members();
  member->set_id("5.1");
  member->set_state("FAILED");
  member->set_reason("5.1.train: exit code 1");
  (*member->mutable_parameters())["lr"] = "0.1";
  const std::string text = render_experiment(reply, {{}, kNow, false});
  CHECK(text.find("Type:    Set\n") != std::string::npos);
  CHECK(text.find("Members: 2: 1 running, 0 finished, 1 failed\n") != std::string::npos);
  CHECK(text.find("lr=0.1         5.1.train: exit code 1\n") != std::string::npos);
}

}  // namespace
}  // namespace dtrain::cli
