#include "cli/why.h"

#include <doctest/doctest.h>

namespace dtrain::cli {
namespace {

pb::ShowReply experiment(const char* state, const char* reason) {
  pb::ShowReply reply;
  reply.mutable_experiment()->set_id("4");
  reply.mutable_experiment()->set_state(state);
  reply.mutable_experiment()->set_reason(reason);
  return reply;
}

void add_replica(pb::ShowReply& reply, const char* id, const char* state, const char* reason,
                 uint64_t finished) {
  pb::ReplicaInfo* replica = reply.add_replicas();
  replica->set_id(id);
  replica->set_state(state);
  replica->set_reason(reason);
  replica->set_finished_unix_ms(finished);
}

TEST_CASE("one that waits says what for") {
  auto reply = experiment("PENDING", "needs 4 GPUs on 2 hosts; free: 3+4");
  reply.mutable_experiment()->set_hint("dtrain hosts shows who holds them");
  const Why why = find_why(reply);
  CHECK(why.reason == "needs 4 GPUs on 2 hosts; free: 3+4");
  CHECK(why.hint == "dtrain hosts shows who holds them");
  CHECK(why.log_command.empty());
}

TEST_CASE("one that failed names the replica that was the cause, and its log") {
  auto reply = experiment("FAILED", "4.worker.2: out of memory");
  reply.mutable_experiment()->set_started_unix_ms(1);
  add_replica(reply, "4.master", "FAILED", "exit code 1", 30);
  add_replica(reply, "4.worker.2", "FAILED", "out of memory", 20);
  add_replica(reply, "4.ps.1", "FINISHED", "ended with the experiment", 10);
  const Why why = find_why(reply);
  CHECK(why.replica == "4.worker.2");
  CHECK(why.reason == "4.worker.2: out of memory");
  CHECK(why.log_command == "dtrain logs 4.worker.2 --tail 50");
}

TEST_CASE("a replica whose failure was ignored is not the cause, whatever ended it later") {
  for (const char* reason : {"4.master: exit code 7", "its max-duration of 60 s has passed"}) {
    auto reply = experiment("FAILED", reason);
    reply.mutable_experiment()->set_started_unix_ms(1);
    add_replica(reply, "4.master", "FAILED", "exit code 7", 30);
    add_replica(reply, "4.worker.1", "FAILED", "exit code 3", 20);
    const Why why = find_why(reply);
    CHECK(why.reason == reason);
    CHECK(why.replica != "4.worker.1");
    CHECK(why.log_tells == (why.replica == "4.master"));
  }
}

TEST_CASE("what no program did by itself has a hint at how to go on") {
  auto reply = experiment("FAILED", "4.train: out of memory");
  reply.mutable_experiment()->set_started_unix_ms(1);
  CHECK(find_why(reply).hint ==
        "dtrain rerun 4 starts it again; restart: {limit: 3} in dtrain.yml does so by itself");
  reply.mutable_experiment()->set_framework("engine");
  CHECK(find_why(reply).hint.starts_with(
      "dtrain rerun 4 (--resume: from its newest checkpoint, if it has one) starts it again; "));
  reply.mutable_experiment()->clear_framework();
  reply.mutable_experiment()->set_reason("4.train: its keeper died");
  CHECK(find_why(reply).hint.starts_with("a keeper is dtrain's own process above the program"));
  for (const char* used : {"its one restart is used", "all 3 restarts are used"}) {
    reply.mutable_experiment()->set_reason(std::string("4.train: out of memory; ") + used);
    CHECK(
        find_why(reply).hint ==
        "dtrain rerun 4 starts it again; a higher restart.limit in dtrain.yml does so more often");
  }
  reply.mutable_experiment()->set_reason("4.train: exit code 1");
  CHECK(find_why(reply).hint.empty());
  reply.mutable_experiment()->set_reason("4.train: exit code 127");
  reply.set_spec_yaml("project: p\ntrain: {run: python train.py}\n");
  CHECK(find_why(reply).hint.starts_with("no such command was found: PATH is that of whoever started the daemon"));
  reply.set_spec_yaml("project: p\ntrain: {image: python, run: pyton train.py}\n");
  CHECK(find_why(reply).hint.empty());
  reply.mutable_experiment()->set_reason("4.train: exit code 2");
  reply.mutable_experiment()->set_exit_code(2);
  CHECK(find_why(reply).hint.empty());
  reply.mutable_experiment()->set_framework("engine");
  CHECK(find_why(reply).hint ==
        "as it was it is refused again; with what its log names changed: dtrain train, "
        "or dtrain rerun 4 --set KEY=VALUE");
}

TEST_CASE("what was killed at its limit of memory is told how to get more") {
  auto reply = experiment("FAILED", "4.train: out of memory: killed at its limit of 50 MiB");
  reply.mutable_experiment()->set_started_unix_ms(1);
  CHECK(find_why(reply).hint ==
        "`mem` is a hard limit here: dtrain rerun 4 --set train.resources.mem=... gives it more");
  reply.mutable_experiment()->set_reason("4.worker.1: out of memory: killed at its limit of 50 MiB");
  CHECK(find_why(reply).hint ==
        "`mem` is a hard limit here: a larger one in dtrain.yml, of the role or of train.resources, "
        "gives it more");
}

TEST_CASE("what lacks podman and docker goes without its image, or where one of them is") {
  auto reply = experiment("FAILED", "image tiny: neither podman nor docker is there on n1; mend that there");
  CHECK(find_why(reply).hint == "install one of them there, or do without the image: dtrain rerun 4 --no-image");
}

TEST_CASE("no restart is advised where none would help") {
  auto after = experiment("FAILED", "was to come after 3, which is KILLED");
  for (const char* other : {"3", "33", "2.1"}) after.add_after(other);
  CHECK(find_why(after).hint == "dtrain rerun 4 --after ID,33,2.1, where ID is a run of that one that is FINISHED, or will be");
  auto reply = experiment("FAILED", "4.train: data x: /x is not there on n1");
  CHECK(find_why(reply).hint == "once that is mended, dtrain rerun 4 starts it again");
  reply.mutable_experiment()->set_started_unix_ms(1);
  reply.mutable_experiment()->set_reason("its max-duration of 1m has passed");
  CHECK(find_why(reply).hint == "dtrain rerun 4 --set train.max-duration=... gives it more");
  reply.mutable_experiment()->set_framework("engine");
  CHECK(find_why(reply).hint ==
        "dtrain rerun 4 --resume --set train.max-duration=... gives it more");
}

TEST_CASE("there is always a reason") {
  for (const char* state :
       {"CREATED", "PENDING", "BUILDING", "STARTING", "RUNNING", "STOPPING", "RESTARTING",
        "FINISHED", "FAILED", "KILLED", "a word from the future"}) {
    CHECK(!find_why(experiment(state, "")).reason.empty());
  }
}

TEST_CASE("a set points at the member to ask about") {
  auto reply = experiment("FAILED", "");
  reply.mutable_experiment()->set_members(3);
  reply.mutable_experiment()->set_members_failed(3);
  reply.mutable_experiment()->set_members_killed(2);
  for (const char* id : {"4.1", "4.2"}) {
    pb::ExperimentInfo* member = reply.add_members();
    member->set_id(id);
    member->set_state(std::string(id) == "4.2" ? "FAILED" : "KILLED");
  }
  const Why why = find_why(reply);
  CHECK(why.reason == "3 members: 0 running, 0 finished, 1 failed, 2 killed");
  CHECK(why.hint == "dtrain why 4.2");
}

TEST_CASE("of a set that runs it is said what does, and that nothing holds it up where none waits") {
  auto reply = experiment("RUNNING", "2 of 6 finished");
  reply.mutable_experiment()->set_members(6);
  reply.mutable_experiment()->set_members_running(3);
  pb::ExperimentInfo* member = reply.add_members();
  member->set_id("4.5");
  member->set_state("PENDING");
  CHECK(find_why(reply).reason == "2 of 6 finished; 3 run");
  CHECK(find_why(reply).hint == "dtrain why 4.5");
  member->set_state("RUNNING");
  CHECK(find_why(reply).reason == "2 of 6 finished; 3 run, and nothing holds them up");
  CHECK(find_why(reply).hint == "");
  reply.mutable_experiment()->set_members_running(1);
  CHECK(find_why(reply).reason == "2 of 6 finished; 1 runs, and nothing holds it up");
}

TEST_CASE("it is shown as lines") {
  auto reply = experiment("FAILED", "4.master: exit code 1");
  reply.mutable_experiment()->set_started_unix_ms(1);
  reply.mutable_experiment()->set_finished_unix_ms(1'000'000);
  CHECK(render_why(reply.experiment(), find_why(reply), {{}, 1'180'000, false}) ==
        "4:   ✗ FAILED, 3 minutes ago\n"
        "Why: 4.master: exit code 1\n"
        "Log: dtrain logs 4.master --tail 50\n");
  add_replica(reply, "4.master", "FAILED", "exit code 1", 30);
  Why why = find_why(reply);
  CHECK(why.log_tells);
  why.log_lines = {"Traceback", "no data"};
  CHECK(render_why(reply.experiment(), why, {{}, 1'180'000, false}) ==
        "4:   ✗ FAILED, 3 minutes ago\n"
        "Why: 4.master: exit code 1\n"
        "Log: dtrain logs 4.master --tail 50\n"
        "Last lines of 4.master:\n"
        "  | Traceback\n"
        "  | no data\n");
  reply = experiment("RUNNING", "");
  reply.mutable_experiment()->set_submitted_unix_ms(1'000'000);
  CHECK(render_why(reply.experiment(), find_why(reply), {{}, 1'180'000, false})
            .starts_with("4:   ● RUNNING, submitted 3 minutes ago\n"));
  reply.mutable_experiment()->set_started_unix_ms(1'060'000);
  CHECK(render_why(reply.experiment(), find_why(reply), {{}, 1'180'000, false})
            .starts_with("4:   ● RUNNING, started 2 minutes ago\n"));
  CHECK(render_why(reply.experiment(), find_why(reply), {{true, false, 24, 24}, 1'180'000, false})
            .find("Why: it runs; nothing\n     holds it up\nLog: dtrain logs 4 -f\n") != std::string::npos);
}

}  // namespace
}  // namespace dtrain::cli
