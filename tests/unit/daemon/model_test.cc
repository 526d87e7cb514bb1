#include "daemon/model.h"

#include <doctest/doctest.h>

namespace dtrain::daemon {

namespace {

struct Made {
  Made() {
    auto made = std::make_shared<Submission>();
    made->number = 1;
    RoleSpec master, worker;
    master.role = Role::Master;
    worker.role = Role::Worker;
    worker.count = 2;
    made->spec.roles = {master, worker};
    experiment.id = {1, 0};
    experiment.submission = made;
  }

  void place(Progress progress) {
    experiment.attempt = 1;
    experiment.phase = Phase::Go;
    for (const ReplicaId& id : replica_ids(experiment.id, experiment.spec())) {
      Replica replica;
      replica.id = id;
      replica.attempt = 1;
      replica.progress = progress;
      experiment.replicas.push_back(replica);
    }
  }

  Experiment experiment;
};

}  // namespace

TEST_CASE("replica ids in Spec order") {
  const Made made;
  const auto ids = replica_ids(made.experiment.id, made.experiment.spec());
  REQUIRE(ids.size() == 3);
  CHECK(to_string(ids[0]) == "1.master");
  CHECK(to_string(ids[2]) == "1.worker.2");
}

TEST_CASE("states follow from the facts") {
  Made made;
  Experiment& e = made.experiment;
  CHECK(state_of(e) == State::Pending);
  e.held = true;
  CHECK(state_of(e) == State::Created);
  e.held = false;
  made.place(Progress::Prepared);
  CHECK(state_of(e) == State::Starting);
  for (Replica& replica : e.replicas) replica.progress = Progress::Started;
  CHECK(state_of(e) == State::Running);
  CHECK(state_of(e, e.replicas[1]) == State::Running);
  e.phase = Phase::Ending;
  CHECK(state_of(e) == State::Restarting);
  CHECK(state_of(e, e.replicas[1]) == State::Restarting);
  e.outcome = Outcome{State::Failed, 3, e.replicas[1].id, "exit code 3", 5};
  CHECK(state_of(e) == State::Stopping);
  e.replicas[1].end = State::Failed;
  CHECK(state_of(e, e.replicas[1]) == State::Stopping);
  e.replicas[1].progress = Progress::Released;
  CHECK(state_of(e, e.replicas[1]) == State::Failed);
  e.over = true;
  CHECK(state_of(e) == State::Failed);
}

TEST_CASE("a relaunched replica keeps its seat, and the experiment RUNNING") {
  Made made;
  Experiment& e = made.experiment;
  made.place(Progress::Started);
  Replica& worker = e.replicas[1];
  worker.exit = Exit{9, 0, false, false, "exit code 9", 1, 0, 0, 0, 0};
  worker.progress = Progress::Released;
  CHECK(awaits_relaunch(e, worker));
  CHECK(holds_seat(e, worker));
  CHECK(state_of(e, worker) == State::Restarting);
  CHECK(state_of(e) == State::Running);
  worker.attempt = 2;
  worker.exit.reset();
  worker.progress = Progress::Launched;
  CHECK(state_of(e, worker) == State::Starting);
  CHECK(state_of(e) == State::Running);
}

TEST_CASE("exit status as train returns it") {
  Exit exit;
  CHECK_FALSE(is_failure(exit));
  CHECK(exit_status(exit) == 0);
  exit.signal = 9;
  CHECK(exit_status(exit) == 137);
  exit.signal = 0;
  exit.lost_keeper = true;
  CHECK(is_failure(exit));
  CHECK(exit_status(exit) == 1);
}

TEST_CASE("a set is over when all are, FINISHED if any is") {
  Made a, b;
  std::vector<const Experiment*> members{&a.experiment, &b.experiment};
  CHECK(set_state(members) == State::Pending);
  a.experiment.outcome = Outcome{};
  a.experiment.over = true;
  a.experiment.attempt = 1;
  a.experiment.started_unix_ms = 1;
  CHECK(set_state(members) == State::Running);
  b.experiment.outcome = Outcome{State::Failed, 1, std::nullopt, "", 1};
  b.experiment.over = true;
  CHECK(set_state(members) == State::Finished);
  a.experiment.outcome->state = State::Killed;
  CHECK(set_state(members) == State::Failed);
}

TEST_CASE("a set that was killed as a whole is KILLED, and one of which more failed than may is FAILED") {
  Made a, b;
  const std::vector<const Experiment*> members{&a.experiment, &b.experiment};
  a.experiment.outcome = Outcome{};
  b.experiment.outcome = Outcome{State::Killed, 130, std::nullopt, "killed", 1};
  a.experiment.over = b.experiment.over = true;
  CHECK(set_state(members) == State::Finished);   // one of its members was killed alone
  b.experiment.outcome->with_set = true;
  CHECK(set_state(members) == State::Killed);
  b.experiment.outcome = Outcome{State::Failed, 1, std::nullopt, "", 1};
  CHECK(set_state(members) == State::Finished);
  Submission strict = *b.experiment.submission;
  strict.spec.search.max_failed = 0;
  a.experiment.submission = b.experiment.submission = std::make_shared<const Submission>(strict);
  CHECK(set_state(members) == State::Failed);
}

}  // namespace dtrain::daemon
