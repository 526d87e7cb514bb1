// What an exit means: for the replica, for the gang, for the experiment. The first committed cause
// wins; an outcome once fixed is never changed.
#include <fmt/format.h>

#include <algorithm>

#include "daemon/failure_rules.h"
#include "daemon/lifecycle_turn.h"
#include "daemon/placement_fitness.h"
#include "schema/engine_spec.h"
#include "schema/quote.h"
#include "schema/text_formats.h"

namespace dtrain::daemon {

namespace {

constexpr const char* kEndedWith = "ended with the experiment";
constexpr int kFirstCodeOfSignals = 128;

bool is_decider(const Experiment& experiment, const Replica& replica) {
  return decider(experiment).id == replica.id;
}

// Roles that serve the others: they end with the experiment and never hold it up.
bool serves(Role role) { return role == Role::Ps || role == Role::Tensorboard; }

// Collectives (all-reduce, MPI) can't take a member back: a lost one restarts the gang. Parameter
// servers and programs that know nothing of each other can. A server of the engine is waited for,
// even by workers that can't be without each other.
bool is_collective(const Spec& spec, Role role) {
  switch (spec.framework) {
    case Framework::Pytorch:
    case Framework::Jax:
    case Framework::Mpi: return true;
    case Framework::Tensorflow: return spec.role(Role::Ps) == nullptr;
    case Framework::Engine: return spec.engine.in_step && role != Role::Ps;
    case Framework::Command: break;
  }
  return false;
}

// The engine's own way to say that another start would change nothing.
bool is_refusal(const Spec& spec, const Replica& replica) {
  return spec.framework == Framework::Engine && replica.exit && replica.exit->signal == 0 &&
         replica.exit->code == kEngineRefusedCode && replica.id.role != Role::Tensorboard;
}

// This attempt is over and another follows: everyone is stopped, see settle().
void end_attempt(Turn& turn, Experiment& experiment, const std::string& reason,
                 int64_t backoff_ms) {
  experiment.phase = Phase::Ending;
  experiment.wait_reason = reason;
  experiment.not_before_ms = backoff_ms > 0 ? turn.now + backoff_ms : 0;
  turn.model.place_wanted = true;   // who was about to be launched again alone gives its seat back
}

void succeed_when_complete(Turn& turn, Experiment& experiment) {
  const Replica& first = decider(experiment);
  if (!first.exit || is_failure(*first.exit)) return;
  // One that is gone and has no end is about to be launched again.
  const auto worker_left = [](const Replica& replica) {
    return replica.id.role == Role::Worker && !replica.end;
  };
  if (experiment.spec().completion == Completion::AllWorkers &&
      std::any_of(experiment.replicas.begin(), experiment.replicas.end(), worker_left)) {
    return;
  }
  fix_outcome(turn, experiment, State::Finished, &first, "");
}

// Counted when they failed, and not launched yet. What became of `replica`, if it is one, is not counted by now.
uint32_t restarts_under_way(const Experiment& experiment, const Replica* replica) {
  return static_cast<uint32_t>(std::count_if(
      experiment.replicas.begin(), experiment.replicas.end(), [&](const Replica& other) {
        if (&other == replica) return false;
        const bool failed = other.exit && is_failure(*other.exit) && !other.end;
        return failed || awaits_relaunch(experiment, other);
      }));
}

// What a signal ended may run the next time, as what is lost may; what gave up by itself would again.
OnFailure rule_for(const Experiment& experiment, const Replica& replica) {
  const OnFailure said = role_of(experiment, replica).on_failure;
  if (said != OnFailure::RestartOnSignal) return said;
  const bool gave_up = replica.exit && replica.exit->signal == 0 && !replica.exit->lost_keeper &&
                       replica.exit->code < kFirstCodeOfSignals;
  return gave_up ? OnFailure::Fail : OnFailure::Restart;
}

bool may_be_ignored(const Experiment& experiment, const Replica& replica) {
  return rule_for(experiment, replica) == OnFailure::Ignore && !is_decider(experiment, replica);
}

OnFailure as_on_failure(FailureAction action) { return restarts(action) ? OnFailure::Restart : OnFailure::Fail; }

std::string restart_text(const Experiment& experiment, const std::string& why) {
  return fmt::format("restart {} of {} after {}", experiment.restarts_used, experiment.spec().restarts_most(), why);
}

std::string failed_text(const Experiment& experiment, OnFailure rule, const std::string& why) {
  const int most = experiment.spec().restarts_most();
  if (rule != OnFailure::Restart || most == 0) return why;
  return most == 1 ? why + "; its one restart is used" : fmt::format("{}; all {} restarts are used", why, most);
}

// Tried again there only where no other host would do. Returns what people are told.
std::string exclude_hosts(Turn& turn, Experiment& experiment, const std::vector<HostId>& hosts) {
  std::string names;
  for (const HostId& id : hosts) {
    std::erase(experiment.excluded_hosts, id);
    experiment.excluded_hosts.push_back(id);
    const Host* const known = turn.host(id);
    names += (names.empty() ? "" : ", ") + (known == nullptr ? id.hex : known->name);
  }
  return fmt::format("other hosts than {} are tried first", names);
}

// All of it ends, and what comes then is judged when it has: at once where no other has anything to say any more.
void end_with_failure(Turn& turn, Experiment& experiment, const Failure& failure) {
  experiment.failure = failure;
  look_for_lost(turn);
  const auto may_say_more = [](const Replica& replica) {
    return is_alive(replica) || (replica.lost && replica.lease_ms == 0 && replica.progress < Progress::Exited);
  };
  if (std::ranges::none_of(experiment.replicas, may_say_more)) return judge_ended_attempt(turn, experiment);
  end_attempt(turn, experiment, failure_text(failure), 0);
}

// What dtrain itself ended is no failure, nor is the loss of a host to a gang that makes do with others.
bool concerns_policy(const Experiment& experiment, const Replica& replica) {
  if (experiment.spec().failure_policy.empty() || is_build(replica) || replica.id.role == Role::Tensorboard) return false;
  const bool lost_of_elastic = experiment.spec().elastic && replica.lost && !replica.exit;
  return !replica.leaves && !lost_of_elastic;
}

// `seat_remains`: its host is there, so that it could be launched again where the others expect it.
// `again`: it has failed, which was counted, and now it is lost as well.
void judge_failure(Turn& turn, Experiment& experiment, Replica& replica, const std::string& what,
                   bool seat_remains, bool again) {
  const bool refusal = is_refusal(experiment.spec(), replica);
  const bool has_policy = !refusal && concerns_policy(experiment, replica);
  const FittingRule said = has_policy ? rule_that_fits(experiment, &replica) : FittingRule();
  const OnFailure rule = refusal ? OnFailure::Fail : said.rule ? as_on_failure(said.rule->action) : rule_for(experiment, replica);
  const RestartPolicy& budget = experiment.spec().restart;
  const bool decides = is_decider(experiment, replica);
  const Failure failure{replica.id, what};
  replica.reason = what;
  if (rule == OnFailure::Ignore && !decides) {
    replica.end = replica.lost ? State::Lost : State::Failed;
    succeed_when_complete(turn, experiment);
    return;
  }
  // A replica that was to be launched again comes with the gang now, at no restart of its own.
  const bool moves = said.rule && said.rule->action == FailureAction::ExcludeHost;
  const bool whole_gang = moves || decides || is_collective(experiment.spec(), replica.id.role) || !seat_remains;
  uint32_t spared = again ? 1 : 0;
  const uint32_t others = restarts_under_way(experiment, &replica);
  if (whole_gang) spared += others;
  const uint32_t used = experiment.restarts_used - std::min(spared, experiment.restarts_used);
  const int most = experiment.spec().restarts_most();
  const bool restarts = rule == OnFailure::Restart && used < static_cast<uint32_t>(most);
  if (has_policy && (whole_gang || !restarts)) {
    experiment.restarts_used = used - (whole_gang ? 0 : std::min(others, used));
    return end_with_failure(turn, experiment, failure);
  }
  const std::string named = failure_text(failure);
  if (restarts) {
    experiment.restarts_used = used + 1;
    if (whole_gang) {
      end_attempt(turn, experiment, restart_text(experiment, named), budget.backoff_ms);
    } else {
      // settle() launches it again; not in this same turn, so that people see it RESTARTING.
      replica.reason += fmt::format("; restart {} of {}", experiment.restarts_used, most);
      experiment.not_before_ms = turn.now + std::max<int64_t>(budget.backoff_ms, 1);
    }
    return;
  }
  replica.end = replica.lost ? State::Lost : State::Failed;
  fix_outcome(turn, experiment, State::Failed, &replica, failed_text(experiment, rule, named));
}

}  // namespace

std::string cause_of(const Exit& exit) {
  if (!exit.cause.empty()) return exit.cause;
  if (exit.lost_keeper) return "its keeper died";
  if (exit.memory_kill) return "out of memory";
  if (exit.signal != 0) return fmt::format("killed by signal {}", exit.signal);
  return fmt::format("exit code {}", exit.code);
}

int64_t lease_ms_of(const Spec& spec, const Policy& policy) {
  if (spec.max_away_ms > 0) return spec.max_away_ms;
  return may_restart(spec) ? policy.lease_ms : 0;
}

bool may_restart(const Spec& spec) {
  if (spec.elastic || spec.preemptible) return true;
  if (std::ranges::any_of(spec.failure_policy, [](const FailureRule& rule) { return restarts(rule.action); })) return true;
  return spec.restart.limit > 0 &&
         std::any_of(spec.roles.begin(), spec.roles.end(), [](const RoleSpec& role) {
           return restarts(role.on_failure);
         });
}

void judge_exit(Turn& turn, Experiment& experiment, Replica& replica) {
  INVARIANT(replica.exit.has_value(), "an exit is judged once it is known");
  if (experiment.outcome || experiment.phase == Phase::Ending) return;   // a consequence
  if (is_failure(*replica.exit)) {
    judge_failure(turn, experiment, replica, cause_of(*replica.exit), true, false);
    return;
  }
  replica.end = State::Finished;
  succeed_when_complete(turn, experiment);
}

void judge_loss(Turn& turn, Experiment& experiment, Replica& replica, const std::string& reason) {
  if (experiment.outcome) return;
  const bool may_still_run = replica.lost && replica.progress != Progress::Released &&
                             replica.progress != Progress::Exited && replica.lease_ms == 0;
  if (may_still_run && !may_restart(experiment.spec()) && !is_build(replica)) {
    // Nothing ends it there, so that no other attempt could ever start.
    replica.end = State::Lost;
    replica.reason = reason;
    if (experiment.failure) return judge_ended_attempt(turn, experiment);
    fix_outcome(turn, experiment, State::Failed, &replica,
                fmt::format("{}: {}", to_string(replica.id), reason));
    return;
  }
  if (experiment.phase == Phase::Ending) return;
  const bool was_started = replica.pid != 0;
  if (!was_started || !all_started(experiment)) {
    start_failed(turn, experiment, replica.seat.host,
                 fmt::format("{}: {}", to_string(replica.id), reason));
    return;
  }
  if (experiment.spec().elastic && replica.lost && !replica.exit && !may_be_ignored(experiment, replica)) {
    replica.reason = reason;   // the others do without its host, or wait for one
    return end_attempt(turn, experiment, fmt::format("{}: {}", to_string(replica.id), reason), experiment.spec().restart.backoff_ms);
  }
  judge_failure(turn, experiment, replica, reason, replica.progress == Progress::Released,
                replica.exit.has_value());
}

void end_for_silence(Turn& turn, Experiment& experiment) {
  experiment.restarts_used -= std::min(restarts_under_way(experiment, nullptr), experiment.restarts_used);   // they come with the gang
  end_with_failure(turn, experiment, {std::nullopt, silence_text(experiment.spec())});
}

void judge_ended_attempt(Turn& turn, Experiment& experiment) {
  const Failure failure = *experiment.failure;
  experiment.failure.reset();
  const auto found = std::ranges::find_if(experiment.replicas, [&](const Replica& replica) { return replica.id == failure.cause; });
  Replica* const cause = found == experiment.replicas.end() ? nullptr : &*found;
  const FittingRule fits = rule_that_fits(experiment, cause);
  const OnFailure rule = fits.rule ? as_on_failure(fits.rule->action) : cause ? rule_for(experiment, *cause) : OnFailure::Fail;
  std::string why = failure_text(failure);
  std::optional<ReplicaId> printer;
  if (fits.printer && (fits.line.empty() || failure.what.find(in_quotes(fits.line)) == std::string::npos)) {   // who was ended for it says so
    const std::string line = fits.line.empty() ? fmt::format("what rule {} is about", fits.number + 1) : in_quotes(fits.line);
    if (fits.printer != cause) printer = fits.printer->id;
    why += fmt::format("; {} printed {}", printer ? to_string(*printer) : "it", line);
  }
  if (rule == OnFailure::Restart && experiment.restarts_used < static_cast<uint32_t>(experiment.spec().restarts_most())) {
    ++experiment.restarts_used;
    std::string text = restart_text(experiment, why);
    if (fits.rule && fits.rule->action == FailureAction::ExcludeHost) {
      text += "; " + exclude_hosts(turn, experiment, hosts_of_failure(experiment, fits, cause));
    }
    return end_attempt(turn, experiment, text, experiment.spec().restart.backoff_ms);
  }
  if (cause) cause->end = cause->lost ? State::Lost : State::Failed;
  fix_outcome(turn, experiment, State::Failed, cause, failed_text(experiment, rule, why));
  experiment.outcome->printer = printer;
}

void start_failed(Turn& turn, Experiment& experiment, const HostId& host,
                  const std::string& reason) {
  const Host* const known = turn.host(host);
  const std::string name = known == nullptr ? host.hex : known->name;
  const bool is_spread = std::ranges::any_of(experiment.replicas, [&](const Replica& replica) { return replica.seat.host != host; });
  std::string text = fmt::format("start failed{}, not your program's doing: {}", is_spread ? " on " + name : "", reason);
  const int64_t wait_ms = count_failed_start(turn, experiment);
  if (experiment.start_failures % turn.policy.start_failures_per_host == 0) {
    std::erase(experiment.excluded_hosts, host);
    experiment.excluded_hosts.push_back(host);
    text += fmt::format("; after {} failed starts in a row other hosts than {} are tried first", experiment.start_failures, name);
  } else if (experiment.start_failures > kFailedStartsShown) {
    text += fmt::format("; {} starts have failed in a row", experiment.start_failures);
  }
  end_attempt(turn, experiment, text, wait_ms);
}

int64_t count_failed_start(const Turn& turn, Experiment& experiment) {
  constexpr uint32_t kDoublingsMax = 6;   // of start_retry_ms: about a minute
  const uint32_t rounds = experiment.start_failures++ / turn.policy.start_failures_per_host;
  return turn.policy.start_retry_ms << std::min(rounds, kDoublingsMax);
}

void start_again_at_once(Turn& turn, Experiment& experiment, const std::string& reason) {
  end_attempt(turn, experiment, reason, 0);
}

void leave_host(Turn& turn, Experiment& experiment, const HostId& host, const std::string& reason) {
  if (experiment.outcome || experiment.phase == Phase::Ending || experiment.phase == Phase::None) return;
  const bool begun = experiment.phase == Phase::Go && all_started(experiment);
  bool needed = false;
  for (Replica& replica : experiment.replicas) {
    if (replica.seat.host != host || !is_seated(experiment, replica)) continue;
    const bool goes_on = is_alive(replica) || awaits_relaunch(experiment, replica);
    if (begun && !goes_on) continue;   // what it did is done
    if (begun && may_be_ignored(experiment, replica) && is_alive(replica)) {
      replica.leaves = true;
    } else {
      needed = true;
    }
  }
  if (!needed) return;
  if (may_restart(experiment.spec()) || !begun) {
    return start_again_at_once(turn, experiment, reason + "; goes on elsewhere");
  }
  // What it was doing may yet turn out to have succeeded: it is not what failed.
  fix_outcome(turn, experiment, State::Failed, nullptr, reason);
}

void leave_unfit_host(Turn& turn, Experiment& experiment, Replica& replica) {
  if (!has_no_host_left(turn.model, experiment, turn.now)) {
    start_again_at_once(turn, experiment,
                        lacks_text(turn.model, experiment) + "; other hosts are tried");
    return;
  }
  replica.end = State::Failed;
  replica.reason = no_host_left_text(turn.model, experiment);
  fix_outcome(turn, experiment, State::Failed, &replica, replica.reason);
}

void end_overdue(Turn& turn, Experiment& experiment) {
  const std::string over = fmt::format("its max-duration of {} has passed", format_duration_ms(experiment.spec().max_duration_ms));
  if (!experiment.failure) return fix_outcome(turn, experiment, State::Failed, nullptr, over);
  const auto cause = std::ranges::find_if(experiment.replicas, [&](const Replica& one) { return one.id == experiment.failure->cause; });
  const std::string why = failure_text(*experiment.failure) + "; " + over;   // no other start would help it
  if (cause == experiment.replicas.end()) return fix_outcome(turn, experiment, State::Failed, nullptr, why);
  cause->end = cause->lost ? State::Lost : State::Failed;
  fix_outcome(turn, experiment, State::Failed, &*cause, why);
}

void fix_outcome(Turn& turn, Experiment& experiment, State state, const Replica* cause,
                 const std::string& reason) {
  INVARIANT(!experiment.outcome, "the first committed cause wins");
  Outcome outcome;
  outcome.state = state;
  outcome.reason = reason;
  outcome.at_ms = turn.now;
  if (cause != nullptr) outcome.cause = cause->id;
  if (state == State::Failed) {
    outcome.exit_code = cause != nullptr && cause->exit ? exit_status(*cause->exit) : 1;
    if (outcome.exit_code == 0) outcome.exit_code = 1;
  } else if (state == State::Killed) {
    outcome.exit_code = kKilledCode;
  }
  experiment.outcome = std::move(outcome);
  experiment.failure.reset();
  experiment.awaits = false;
  experiment.not_before_ms = 0;
  turn.model.place_wanted = true;
  const auto is_away = [&](const Replica& replica) {
    const Host* host = turn.host(replica.seat.host);
    return is_alive(replica) && host != nullptr && !host->connected;
  };
  if (std::ranges::any_of(experiment.replicas, is_away)) look_for_lost(turn);
}

void conclude(const Experiment& experiment, Replica& replica) {
  if (replica.end) return;
  const Outcome& outcome = *experiment.outcome;
  const bool served = serves(replica.id.role) && replica.started_unix_ms != 0;
  if (outcome.state == State::Finished || (outcome.state == State::Failed && served)) {
    replica.end = State::Finished;
    const bool by_itself = replica.exit && !replica.stop_sent;
    replica.reason = !by_itself                   ? kEndedWith
                     : is_failure(*replica.exit) ? fmt::format("{}; {}", cause_of(*replica.exit), kEndedWith)
                                                 : "";
  } else if (replica.lost && !replica.exit) {
    replica.end = State::Lost;
    if (replica.reason.empty()) replica.reason = "lost with its host";
  } else {
    replica.end = State::Killed;
    const char* because = outcome.cause ? "ended because of " : "ended because ";
    replica.reason = outcome.state == State::Killed ? outcome.reason : because + outcome.reason;
  }
}

// Who has to end now. After success the other workers that have begun have finish_grace to end by themselves and the
// ps stay up for them; with no worker left they need not.
bool must_stop(const Experiment& experiment, const Replica& replica, TimeMs now) {
  if (!is_alive(replica)) return false;
  if (replica.leaves) return true;
  if (experiment.phase == Phase::Ending && !experiment.outcome) return true;
  if (!experiment.outcome) return false;
  if (experiment.outcome->state != State::Finished || experiment.outcome->early) return true;
  if (!start_committed(experiment, replica)) return true;
  if (now >= experiment.outcome->at_ms + experiment.spec().finish_grace_ms) return true;
  if (!serves(replica.id.role)) return false;
  return std::none_of(experiment.replicas.begin(), experiment.replicas.end(), [](const Replica& r) {
    return r.id.role == Role::Worker && is_alive(r);
  });
}

}  // namespace dtrain::daemon
