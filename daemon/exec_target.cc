#include "daemon/exec_target.h"

#include "daemon/placement_elastic.h"
#include "daemon/summary.h"

namespace dtrain::daemon {

namespace {

std::string in_parentheses(const std::string& text) { return text.empty() ? "" : fmt::format(" ({})", text); }

// `nearest`: of those that were named the first that is known; null: there is none yet.
Error does_not_run(const IdPattern& pattern, const Experiment* of, const Replica* nearest) {
  const std::string id = to_string(pattern);
  if (of == nullptr) return {Code::FailedPrecondition, id + " does not run", fmt::format("dtrain status {}", pattern.experiment.number)};
  const State state = state_of(*of);
  const ReplicaId named{of->id, pattern.role.value_or(Role::Train), pattern.index.value_or(0)};
  if (pattern.role && nearest == nullptr && is_missing(*of, named)) {
    return {Code::FailedPrecondition, fmt::format("{} does not run: {}", to_string(named), kNoRoomForIt), fmt::format("dtrain why {} tells more", to_string(of->id))};
  }
  const std::string whole = to_string(of->id);
  if (is_terminal(state)) {
    return {Code::FailedPrecondition, fmt::format("{} is over: {}{}", whole, to_string(state), in_parentheses(of->outcome ? of->outcome->reason : "")),
            fmt::format("dtrain output ls {} shows what it left", whole)};
  }
  const bool apart = nearest != nullptr && state_of(*of, *nearest) != state;
  const State shown = apart ? state_of(*of, *nearest) : state;
  const std::string why = apart ? nearest->reason : of->wait_reason;
  return {Code::FailedPrecondition, fmt::format("{} does not run: it is {}{}", apart ? to_string(nearest->id) : id, to_string(shown), in_parentheses(why)),
          fmt::format("dtrain why {} tells more", whole)};
}

}  // namespace

Result<ExecTarget> exec_target(const Scheduler::Known& known, const IdPattern& pattern) {
  TRY(check_exists(known, pattern));
  ExecTarget target;
  const Experiment* first = nullptr;
  const Replica* first_replica = nullptr;
  const auto look_at = [&](const Experiment& experiment) {
    if (!pattern.matches(experiment.id)) return;
    const bool runs = state_of(experiment) == State::Running;
    if (first == nullptr || (runs && state_of(*first) != State::Running)) {
      first = &experiment;
      first_replica = nullptr;
    }
    for (const Replica& replica : experiment.replicas) {
      // What a build makes is not there to be looked at before it is whole.
      if (!pattern.matches(replica.id) || (replica.id.role == Role::Build && !pattern.role)) continue;
      if (first_replica == nullptr && first == &experiment) first_replica = &replica;
      if (state_of(experiment, replica) != State::Running) continue;
      if (target.replica == nullptr) {
        target.replica = &replica;
      } else {
        ++target.others;
      }
    }
  };
  for (const Experiment* experiment : known.experiments) look_at(*experiment);
  if (known.shared != nullptr) look_at(*known.shared);
  if (target.replica != nullptr) return target;
  return does_not_run(pattern, first, first_replica);
}

Result<ExecTarget> placed_target(const Scheduler::Known& known, const IdPattern& pattern) {
  TRY(check_exists(known, pattern));
  for (const Experiment* experiment : known.experiments) {
    for (const Replica& replica : experiment->replicas) {
      if (pattern.matches(replica.id) && !replica.seat.host.hex.empty()) return ExecTarget{&replica, 0};
    }
  }
  return Error{Code::FailedPrecondition, to_string(pattern) + " has never begun on a host", ""};
}

}  // namespace dtrain::daemon
