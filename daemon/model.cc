#include "daemon/model.h"

#include <algorithm>
#include <limits>

namespace dtrain::daemon {

HostId id_of_pool(const std::string& pool) { return {"pool:" + pool}; }

Host potential_host(const Pool& pool, int number) {
  Host host;
  host.id.hex = id_of_pool(pool.name).hex + ":" + std::to_string(number);
  host.name = pool.name;
  host.address = pool.name;   // whatever it will be
  host.cpus = pool.cpus;
  host.memory_bytes = pool.memory_bytes;
  for (int gpu = 0; gpu < pool.gpus; ++gpu) host.gpus.push_back({gpu, "", ""});
  host.pool = pool.name;
  host.potential = true;
  host.lasts_ms = pool.lasts_ms;
  return host;
}

int64_t leaves_early_ms(const Host& host) {
  constexpr int64_t kMostMs = 120'000;
  return std::min(host.lasts_ms / 8, kMostMs);
}

Experiment first_state(const std::shared_ptr<const Submission>& submission, uint32_t member) {
  Experiment experiment;
  experiment.id = {submission->number, member};
  experiment.submission = submission;
  experiment.suspended = submission->spec.suspend;
  return experiment;
}

std::string suspended_text(const ExperimentId& id) { return fmt::format("suspended until `resume {}`", to_string(id)); }

State state_of(const Experiment& experiment) {
  if (experiment.over) return experiment.outcome->state;
  if (experiment.outcome) return State::Stopping;
  if (experiment.suspended) return experiment.phase == Phase::None ? State::Suspended : State::Stopping;
  switch (experiment.phase) {
    case Phase::None:
      if (experiment.attempt > 0) return State::Restarting;
      return experiment.held || experiment.awaits ? State::Created : State::Pending;
    case Phase::Building:
      if (std::any_of(experiment.replicas.begin(), experiment.replicas.end(),
                      [](const Replica& r) { return is_build(r) && is_shown(r); })) {
        return State::Building;
      }
      return decider(experiment).attempt > 1 ? State::Restarting : State::Pending;
    case Phase::Placed: return State::Starting;
    case Phase::Go: return all_started(experiment) ? State::Running : State::Starting;
    case Phase::Ending:
      if (experiment.failure) return State::Stopping;
      break;
  }
  return State::Restarting;
}

State state_of(const Experiment& experiment, const Replica& replica) {
  if (replica.end && is_gone(replica)) return *replica.end;
  if (experiment.outcome || experiment.failure) return State::Stopping;
  const bool between = experiment.phase == Phase::None || experiment.phase == Phase::Ending;
  if (between && replica.attempt > 0) {
    // A build that never ran is shown no more once it is gone.
    const bool has_nothing = is_gone(replica) || (is_build(replica) && replica.pid == 0);
    return !experiment.suspended ? State::Restarting : has_nothing ? State::Suspended : State::Stopping;
  }
  // Ended by itself and not yet released: it is what it was, until every byte of its log is here.
  if (replica.exit && !replica.end) return State::Restarting;
  if (awaits_relaunch(experiment, replica)) return State::Restarting;
  switch (replica.progress) {
    case Progress::None: return State::Created;
    case Progress::Launched: return is_build(replica) ? State::Created : State::Starting;
    case Progress::Prepared: return State::Starting;
    case Progress::Started: return State::Running;
    case Progress::Exited:
    case Progress::Released: break;
  }
  return replica.pid == 0 ? State::Starting : State::Running;
}

State set_state(const std::vector<const Experiment*>& members) {
  SetTally tally;
  for (const Experiment* member : members) count_member(tally, *member, 1);
  return set_state(tally);
}

// Once a member ran, the set is running until all are over, whatever the next one waits for.
State set_state(const SetTally& tally) {
  const auto count = [&](State state) { return tally.by_state[static_cast<size_t>(state)]; };
  const uint32_t over = count(State::Finished) + count(State::Failed) + count(State::Killed);
  if (over == tally.members) {
    if (tally.shared_lives) return State::Stopping;
    if (tally.killed_with_set > 0) return State::Killed;
    if (count(State::Failed) > tally.most_failed) return State::Failed;
    if (count(State::Finished) > 0) return State::Finished;
    return count(State::Failed) > 0 ? State::Failed : State::Killed;
  }
  if (over + count(State::Suspended) == tally.members) return State::Suspended;
  if (tally.begun > 0) return State::Running;
  if (tally.placed > 0) return State::Starting;
  return count(State::Pending) > 0 ? State::Pending : State::Created;
}

void count_member(SetTally& tally, const Experiment& member, uint32_t by) {
  tally.members += by;
  tally.by_state[static_cast<size_t>(state_of(member))] += by;
  const int most_failed = member.submission->spec.search.max_failed;
  tally.most_failed = most_failed == Search::kNoLimit ? std::numeric_limits<uint32_t>::max() : static_cast<uint32_t>(most_failed);
  if (member.outcome && member.outcome->with_set) tally.killed_with_set += by;
  if (member.attempt > 0) tally.placed += by;
  if (member.started_unix_ms > 0) tally.begun += by;
  const bool uses_slot = member.phase != Phase::None || (!member.held && !member.awaits && !member.suspended);
  if (!member.over && uses_slot) tally.in_slots += by;
}

std::vector<ReplicaId> replica_ids(const ExperimentId& id, const Spec& spec) {
  std::vector<ReplicaId> ids;
  for (const RoleSpec& role : spec.roles) {
    for (int i = 1; i <= role.count; ++i) {
      ids.push_back({id, role.role, is_numbered(role.role) ? static_cast<uint32_t>(i) : 0});
    }
  }
  return ids;
}

bool is_build(const Replica& replica) {
  return replica.id.role == Role::Build;
}

bool is_shown(const Replica& replica) {
  return !is_build(replica) || replica.pid != 0 || replica.exit ||
         replica.progress == Progress::Prepared;
}

const Replica& decider(const Experiment& experiment) {
  INVARIANT(!experiment.replicas.empty(), "a placed experiment has a decider");
  return experiment.replicas.front();
}

const RoleSpec& role_of(const Experiment& experiment, const Replica& replica) {
  static const RoleSpec kBuild{Role::Build, 1, {}, {}, OnFailure::Fail};
  if (is_build(replica)) return kBuild;
  const RoleSpec* role = experiment.spec().role(replica.id.role);
  INVARIANT(role != nullptr, "a replica's role is in the spec");
  return *role;
}

bool is_failure(const Exit& exit) {
  return exit.code != 0 || exit.signal != 0 || exit.lost_keeper || exit.ended_for_line;
}

int exit_status(const Exit& exit) {
  if (exit.signal != 0) return 128 + exit.signal;
  if (exit.code != 0) return exit.code;
  return is_failure(exit) ? 1 : 0;
}

bool is_gone(const Replica& replica) {
  return replica.progress == Progress::Released || replica.lost;
}

bool is_alive(const Replica& replica) {
  return replica.progress > Progress::None && replica.progress < Progress::Exited && !replica.lost;
}

LaunchId launch_of(const Replica& replica) { return dtrain::launch_of(replica.id, replica.attempt); }

bool start_committed(const Experiment& experiment, const Replica& replica) {
  if (replica.progress >= Progress::Started) return true;
  const bool own_launch = launch_of(replica) != launch_of(decider(experiment));
  if (own_launch) return replica.progress == Progress::Prepared;
  return experiment.phase == Phase::Go && replica.progress == Progress::Prepared;
}

// A replica with an attempt of its own was launched again after everyone had started.
bool all_started(const Experiment& experiment) {
  if (experiment.replicas.empty()) return false;
  const LaunchId of_gang = launch_of(decider(experiment));
  return std::all_of(experiment.replicas.begin(), experiment.replicas.end(), [&](const Replica& r) {
    return launch_of(r) != of_gang || r.progress >= Progress::Started;
  });
}

bool awaits_relaunch(const Experiment& experiment, const Replica& replica) {
  const bool goes_on = experiment.phase == (is_build(replica) ? Phase::Building : Phase::Go);
  return goes_on && !experiment.outcome && !replica.end && replica.progress == Progress::Released;
}

bool holds_seat(const Experiment& experiment, const Replica& replica) {
  if (is_build(replica)) return false;   // it uses what the gang will
  if (replica.progress == Progress::None) return experiment.phase == Phase::Building;
  return !is_gone(replica) || awaits_relaunch(experiment, replica);
}

bool holds_any_seat(const Experiment& experiment) {
  return std::any_of(experiment.replicas.begin(), experiment.replicas.end(),
                     [&](const Replica& replica) { return holds_seat(experiment, replica); });
}

bool can_be_stopped(const Model& model, const Experiment& experiment) {
  return std::all_of(experiment.replicas.begin(), experiment.replicas.end(), [&](const Replica& replica) {
    const auto host = model.hosts.find(replica.seat.host);
    return !holds_seat(experiment, replica) || (host != model.hosts.end() && host->second.connected);
  });
}

bool wants_place(const Experiment& experiment) {
  return experiment.phase == Phase::None && !experiment.outcome && !experiment.held && !experiment.awaits && !experiment.suspended;
}

bool is_queued(const Experiment& experiment) {
  return wants_place(experiment) && experiment.not_before_ms == 0;
}

bool is_seated(const Experiment& experiment, const Replica& replica) {
  if (experiment.over) return false;
  if (replica.progress == Progress::None) return experiment.phase == Phase::Building;
  return replica.progress != Progress::Released || awaits_relaunch(experiment, replica);
}

}  // namespace dtrain::daemon
