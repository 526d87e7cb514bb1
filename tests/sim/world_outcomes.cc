// What an end must follow from and what it costs, told from the facts alone.
#include <algorithm>

#include "schema/engine_spec.h"
#include "sim/world.h"

namespace dtrain::sim {

using namespace daemon;

namespace {

bool succeeded(const Replica& replica) {
  return replica.exit && !is_failure(*replica.exit);
}

// Ranks of one communicator wait for ever for one that is gone. Who asks a parameter server, and the
// server, can do without one that comes back.
bool needs_each_other(const Spec& spec, Role role) {
  const bool all_reduce = spec.framework == Framework::Pytorch || spec.framework == Framework::Jax || spec.framework == Framework::Mpi ||
                          (spec.framework == Framework::Tensorflow && !spec.role(Role::Ps));
  const bool in_step = spec.framework == Framework::Engine && spec.engine.in_step;
  return all_reduce || (in_step && role != Role::Ps);
}

// What the engine says so nobody starts again, nor does without.
bool is_refusal(const Spec& spec, const ReplicaId& replica, const Exit& exit) {
  return spec.framework == Framework::Engine && exit.signal == 0 && exit.code == kEngineRefusedCode &&
         replica.role != Role::Tensorboard;
}

// What no other start would change.
bool gave_up(const Exit& exit) { return exit.signal == 0 && exit.code < 128 && !exit.lost_keeper; }

}  // namespace

void World::check_outcomes() const {
  for (const ExperimentId& id : model_->live) {
    const Experiment& experiment = model_->experiments.at(id);
    const auto limit = static_cast<uint32_t>(experiment.spec().restarts_most());
    require(experiment.restarts_used <= limit, "no more restarts than its budget has");
    require(experiment.start_failures < policy_.start_failures_per_host ||
                !experiment.excluded_hosts.empty(),
            "after so many failed starts in a row a host is excluded");
    check_waits_for_nothing(experiment);
    check_in_time(experiment);
    if (experiment.outcome)
      check_outcome(experiment);
    else if (experiment.phase == Phase::Go)
      check_going(experiment);
  }
}

// What has a time ends by then, when the tick comes that is due.
void World::check_in_time(const Experiment& experiment) const {
  if (!model_->deadlines.empty() && model_->deadlines.begin()->first <= now_) return;
  const Spec& spec = experiment.spec();
  if (!experiment.outcome) {
    const bool runs = spec.max_duration_ms > 0 && experiment.run_since_ms != 0;
    require(!runs || now_ < experiment.run_since_ms + spec.max_duration_ms,
            [&] { return to_string(experiment.id) + " is past its max-duration"; });
    check_silent(experiment);
    return;
  }
  for (const Replica& replica : experiment.replicas) {
    require(!is_alive(replica) || replica.stop_sent ||
                now_ < experiment.outcome->at_ms + spec.finish_grace_ms,
            [&] { return to_string(replica.id) + " is past its finish-grace"; });
  }
}

// A replica that is lost without a lease is ended by nobody: no attempt could ever follow.
void World::check_waits_for_nothing(const Experiment& experiment) const {
  const Spec& spec = experiment.spec();
  const bool restarts = spec.restart.limit > 0 &&
                        std::any_of(spec.roles.begin(), spec.roles.end(), [](const RoleSpec& role) {
                          return dtrain::restarts(role.on_failure);
                        });
  const bool by_rule = std::ranges::any_of(spec.failure_policy, [](const FailureRule& rule) { return rule.action != FailureAction::Fail; });
  if (experiment.outcome || restarts || by_rule || spec.elastic || spec.preemptible) return;
  for (const Replica& replica : experiment.replicas) {
    const bool may_run = replica.lost && replica.progress < Progress::Exited;
    require(!may_run || is_build(replica) || replica.lease_ms > 0,
            [&] { return "what could only be waited for fails: " + to_string(replica.id); });
  }
}

void World::check_outcome(const Experiment& experiment) const {
  const Outcome& outcome = *experiment.outcome;
  const auto& replicas = experiment.replicas;
  if (outcome.state == State::Killed) {
    if (!killed_.contains(experiment.id)) check_killed_by_set(experiment);
    return;
  }
  if (outcome.state == State::Finished && experiment.is_shared()) {
    const auto next = model_->live.upper_bound(experiment.id);
    const bool members_left = next != model_->live.end() && next->number == experiment.id.number;
    require(!members_left || succeeded(replicas.front()),
            "what members share is ended after the last of them");
    return;
  }
  if (outcome.early) {
    require(outcome.state == State::Finished && experiment.costs && experiment.submission->spec.search.stop_early,
            "who ends early had a value");
    return;
  }
  if (outcome.state == State::Finished) {
    require(!replicas.empty() && succeeded(replicas.front()),
            "only the decider's success is an experiment's");
    if (experiment.spec().completion != Completion::AllWorkers) return;
    for (const Replica& replica : replicas) {
      const OnFailure rule = role_of(experiment, replica).on_failure;
      require(replica.id.role != Role::Worker || succeeded(replica) || rule == OnFailure::Ignore,
              [&] { return to_string(replica.id) + " had to succeed too"; });
    }
    return;
  }
  if (!outcome.cause) return;
  const auto cause = std::find_if(replicas.begin(), replicas.end(),
                                  [&](const Replica& r) { return r.id == *outcome.cause; });
  require(cause != replicas.end() && !succeeded(*cause), "nobody fails by a success");
  const bool ignored = role_of(experiment, *cause).on_failure == OnFailure::Ignore && experiment.spec().failure_policy.empty();
  require(!ignored || cause == replicas.begin() || !cause->exit ||
              is_refusal(experiment.spec(), cause->id, *cause->exit),
          "who may be ignored fails nobody");
}

// Nothing has ended it: so nothing may have happened that would have.
void World::check_going(const Experiment& experiment) const {
  const Replica& first = decider(experiment);
  const bool all_workers = experiment.spec().completion == Completion::AllWorkers;
  bool worker_left = false;
  const auto runs = [](const Replica& replica) { return replica.progress == Progress::Started; };
  require(experiment.start_failures == 0 ||
              !std::all_of(experiment.replicas.begin(), experiment.replicas.end(), runs),
          "once all have started no failed start counts");
  for (const Replica& replica : experiment.replicas) {
    worker_left |= replica.id.role == Role::Worker && !replica.end;
    if (!replica.exit || !is_failure(*replica.exit)) continue;
    const bool decides = replica.id == first.id;
    if (!experiment.spec().failure_policy.empty() && replica.id.role != Role::Tensorboard && !is_build(replica)) {
      require(!decides, "whose failure decides ends what it belongs to");
      continue;   // the rest was known when it failed: others may have printed something since
    }
    const OnFailure rule = role_of(experiment, replica).on_failure;
    const bool may_not = rule == OnFailure::Fail || (rule == OnFailure::RestartOnSignal && gave_up(*replica.exit));
    require(!decides && !may_not, "who may not fail ends what it belongs to");
  }
  require(!succeeded(first) || (all_workers && worker_left),
          [&] { return to_string(experiment.id) + " has ended with its decider"; });
}

std::set<HeldReplicaFact> World::lost_ones() const {
  std::set<HeldReplicaFact> lost;
  for (const ExperimentId& id : model_->live) {
    for (const Replica& replica : model_->experiments.at(id).replicas) {
      if (replica.lost) lost.insert({replica.id, replica.attempt});
    }
  }
  return lost;
}

// A host has all of its time since it was last heard, or asked for something after a long silence. Its
// keepers renew their leases by what was heard: who is given up earlier may run while another one starts.
void World::check_lost(const std::set<HeldReplicaFact>& before) const {
  for (const HeldReplicaFact& fact : lost_ones()) {
    if (before.contains(fact)) continue;
    const auto& replicas = model_->experiments.at(fact.replica.experiment).replicas;
    const auto replica = std::find_if(replicas.begin(), replicas.end(),
                                      [&](const Replica& each) { return each.id == fact.replica; });
    const HostId& host = replica->seat.host;
    const int64_t max_away_ms = model_->experiments.at(fact.replica.experiment).spec().max_away_ms;
    const auto contact = contact_ms_.find(host);
    const int64_t patience_ms = model_->hosts.at(host).same_machine
                                    ? policy_.local_grace_ms
                                    : (max_away_ms > 0 ? max_away_ms : policy_.lease_ms) + policy_.lease_margin_ms;
    require(contact == contact_ms_.end() || now_ >= contact->second + patience_ms,
            [&] { return to_string(fact.replica) + " is given up before its host had time"; });
  }
}

// The failure of one who was started, in a gang that nothing has ended.
std::optional<World::Judged> World::being_judged(const Event& event) const {
  const auto* exited = std::get_if<ReplicaExited>(&event);
  if (exited == nullptr || !is_failure(exited->exit)) return std::nullopt;
  const auto found = model_->experiments.find(exited->replica.experiment);
  if (found == model_->experiments.end() || found->second.over) return std::nullopt;
  const Experiment& experiment = found->second;
  if (experiment.outcome || experiment.phase != Phase::Go || !all_started(experiment)) return std::nullopt;
  for (const Replica& replica : experiment.replicas) {
    if (replica.id != exited->replica || replica.attempt != exited->attempt) continue;
    if (replica.lost || replica.progress >= Progress::Exited || is_build(replica)) continue;
    if (start_committed(experiment, replica)) return Judged{*exited, experiment.restarts_used, replica.leaves};
  }
  return std::nullopt;
}

// Who takes the others along, who doesn't, and for whom no other start helps.
void World::check_judged(const Judged& judged) {
  const ReplicaExited& exited = judged.exited;
  const Experiment& experiment = model_->experiments.at(exited.replica.experiment);
  const Spec& spec = experiment.spec();
  const auto name = [&] { return to_string(exited.replica); };
  if (is_refusal(spec, exited.replica, exited.exit)) {
    counts_.add(Seen::EngineRefused);
    require(experiment.outcome && experiment.outcome->state == State::Failed,
            [&] { return name() + " refused, and the experiment goes on"; });
    return;
  }
  if (!spec.failure_policy.empty() && exited.replica.role != Role::Tensorboard && !judged.leaves) return check_judged_by_policy(judged);
  const OnFailure rule = spec.role(exited.replica.role)->on_failure;
  if (rule == OnFailure::RestartOnSignal && gave_up(exited.exit)) {
    require(experiment.outcome && experiment.outcome->state == State::Failed, [&] { return name() + " gave up, and would again"; });
    return;
  }
  if (!dtrain::restarts(rule)) return;
  if (judged.restarts_used >= static_cast<uint32_t>(spec.restart.limit)) return;
  require(!experiment.outcome, [&] { return name() + " has restarts left"; });
  if (needs_each_other(spec, exited.replica.role)) {
    counts_.add(Seen::TogetherAgain);
    require(experiment.phase != Phase::Go, [&] { return "the others go on without " + name(); });
  } else if (exited.replica != decider(experiment).id) {
    counts_.add(Seen::AloneAgain);
    require(experiment.phase == Phase::Go, [&] { return "all are ended for " + name(); });
  }
}

// What ends all of them is judged later; who may be launched again alone is at once.
void World::check_judged_by_policy(const Judged& judged) {
  const Experiment& experiment = model_->experiments.at(judged.exited.replica.experiment);
  const auto cause = std::ranges::find_if(experiment.replicas, [&](const Replica& one) { return one.id == judged.exited.replica; });
  const auto name = [&] { return to_string(cause->id); };
  const Verdict verdict = told_verdict(experiment, *cause);
  const bool decides = cause == experiment.replicas.begin();
  if (verdict == Verdict::Ignored && !decides) return require(!experiment.failure, [&] { return name() + " is to be ignored"; });
  const bool left = judged.restarts_used < static_cast<uint32_t>(experiment.spec().restarts_most());
  const bool alone = verdict == Verdict::Restarts && left && !decides && !needs_each_other(experiment.spec(), cause->id.role);
  const bool others_may_speak = std::ranges::any_of(experiment.replicas, [](const Replica& one) {
    return is_alive(one) || (one.lost && one.lease_ms == 0 && one.progress < Progress::Exited);
  });
  if (!alone && !others_may_speak) {   // then it is judged at once
    counts_.add(Seen::JudgedAtOnce);
    require(!experiment.failure && (verdict != Verdict::Fails || experiment.outcome) && (verdict == Verdict::Fails || !left || !experiment.outcome),
            [&] { return name() + " is judged as its policy says"; });
    return;
  }
  require(!experiment.outcome && (experiment.phase == Phase::Go) == alone && experiment.failure.has_value() == !alone,
          [&] { return name() + (alone ? " is launched again alone" : " takes the others along, and what that means is judged later"); });
  if (alone) counts_.add(Seen::AloneAgain);
  if (alone && told_rule(experiment, &*cause) < experiment.spec().failure_policy.size()) counts_.add(Seen::RestartedAloneByPolicy);
}

std::optional<World::Stopped> World::being_stopped(const Event& event) const {
  const auto* exited = std::get_if<ReplicaExited>(&event);
  if (exited == nullptr) return std::nullopt;
  const auto found = model_->experiments.find(exited->replica.experiment);
  if (found == model_->experiments.end()) return std::nullopt;
  const Experiment& experiment = found->second;
  if (experiment.phase != Phase::Ending || experiment.outcome || experiment.failure) return std::nullopt;
  return Stopped{experiment.id, experiment.restarts_used, experiment.start_failures};
}

void World::check_consequence(const Stopped& stopped) const {
  const Experiment& experiment = model_->experiments.at(stopped.id);
  require(!experiment.outcome && experiment.restarts_used == stopped.restarts_used,
          "an exit that a stop led to fails nobody and costs no restart");
}

// One restart for each replica that is launched again alone, and for each gang that begins anew after
// a failure: also when several failed for the one, or one in more than one way.
void World::check_restarts(const Experiment& experiment) {
  if (experiment.replicas.empty() || experiment.outcome) return;
  Spent& spent = spent_[experiment.id];
  if (experiment.suspended || experiment.gave_way_to) spent.run_since_ms = 0;   // it counts anew
  require(spent.run_since_ms == 0 || spent.run_since_ms == experiment.run_since_ms,
          "max-duration counts from the first start");
  spent.run_since_ms = experiment.run_since_ms;
  if (experiment.failure) return;   // what it costs is judged later
  int under_way = 0;
  for (const Replica& replica : experiment.replicas) {
    if (is_build(replica)) continue;
    if (replica.attempt != decider(experiment).attempt) {
      spent.alone.insert(replica.attempt);
      if (replica.pid != 0) spent.begun.insert(replica.attempt);
    }
    const bool failed = replica.exit && is_failure(*replica.exit) && !replica.end;
    under_way += failed || awaits_relaunch(experiment, replica);
  }
  const auto used = static_cast<int>(experiment.restarts_used);
  const auto alone = static_cast<int>(spent.alone.size());
  if (experiment.phase == Phase::Ending || experiment.phase == Phase::None) {
    under_way = 0;
    if (spent.ended_attempt != experiment.attempt) {
      spent.ended_attempt = experiment.attempt;
      if (experiment.wait_reason.starts_with("restart ")) {
        ++spent.gangs;
      } else {
        spent.let_go = used - alone - spent.gangs;
      }
    }
  }
  const auto told = [&] {
    return fmt::format("{}: {} used, {} launched alone, {} of them begun, {} gangs, {} let go, {} under way",
                       to_string(experiment.id), used, alone, spent.begun.size(), spent.gangs,
                       spent.let_go, under_way);
  };
  require(used <= alone + spent.gangs + spent.let_go + under_way,
          [&] { return "no restart is counted twice: " + told(); });
  require(used >= static_cast<int>(spent.begun.size()) + spent.gangs,
          [&] { return "each restart is counted: " + told(); });
}

bool World::concerns_anybody(const LaunchFailed& failed) const {
  const auto found = model_->experiments.find(failed.launch.experiment);
  if (found == model_->experiments.end() || found->second.over) return false;
  const auto& replicas = found->second.replicas;
  return std::any_of(replicas.begin(), replicas.end(), [&](const Replica& r) {
    return launch_of(r) == failed.launch && r.seat.host == failed.host && !r.lost &&
           (r.progress == Progress::Launched || r.progress == Progress::Prepared);
  });
}

// Of each row that is written.
void World::check_committed(const Experiment& row) {
  if (!row.excluded_hosts.empty()) counts_.add(Seen::HostExcluded);
  for (const Replica& replica : row.replicas) {
    if (replica.lost) counts_.add(Seen::HostLost);
    if (!is_build(replica) && replica.attempt != decider(row).attempt) {
      counts_.add(Seen::RelaunchedAlone);
    }
  }
  if (!row.outcome) return;
  if (row.outcome->cause && row.outcome->cause->role == Role::Build) counts_.add(Seen::BuildFailed);
  if (row.outcome->reason.starts_with("was to come after")) check_came_after(row);
  if (row.outcome->state == State::Killed && !killed_.contains(row.id)) counts_.add(Seen::TooManyFailed);
  const auto known = outcomes_.try_emplace(row.id, *row.outcome).first;
  require(known->second == *row.outcome, "an outcome is fixed once");
}

}  // namespace dtrain::sim
