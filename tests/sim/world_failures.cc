// What a failure-policy makes of failures: told from what each has printed and how the first of them ended, beside the model.
#include <algorithm>

#include "schema/engine_spec.h"
#include "sim/world.h"

namespace dtrain::sim {

using namespace daemon;

namespace {

bool has_printed(const Replica& replica, size_t rule) {
  return replica.exit && std::ranges::any_of(replica.exit->printed, [&](const auto& one) { return one.first == rule; });
}

bool is_away(const Model& model, const Experiment& experiment) {
  return std::ranges::any_of(experiment.replicas, [&](const Replica& replica) {
    const auto host = model.hosts.find(replica.seat.host);
    return holds_seat(experiment, replica) && (host == model.hosts.end() || !host->second.connected);
  });
}

bool could_be_silent(const Experiment& experiment) {
  return experiment.phase == Phase::Go && !experiment.outcome && !experiment.is_shared() && experiment.spec().silence_rule() != nullptr && all_started(experiment);
}

}  // namespace

void World::make_failure_policy(Spec& spec) {
  if (!some_have_policies_ || chance(40)) return;
  for (size_t i = 1 + below(3); i > 0; --i) {
    FailureRule rule;
    rule.action = chance(30) ? FailureAction::Fail : chance(50) ? FailureAction::Restart : FailureAction::ExcludeHost;
    if (chance(60)) rule.printed = "x";
    if (chance(40)) rule.exit_codes = {1, 2};
    spec.failure_policy.push_back(rule);
  }
  if (chance(70)) spec.failure_policy.push_back({"", false, {}, 2'000 + static_cast<int64_t>(below(15)) * 1'000, chance(50) ? FailureAction::Restart : FailureAction::Fail});
}

void World::print_something() {
  if (model_->live.empty()) return;
  auto chosen = model_->live.begin();
  std::advance(chosen, static_cast<long>(below(model_->live.size())));
  const ExperimentId id = *chosen;
  note("{} prints something", to_string(id));
  happen(OutputCame{id});
}

// By what may have been heard of each at the latest, and what surely was.
void World::listen(const Event& event) {
  for (const ExperimentId& id : model_->live) {
    const Experiment& experiment = model_->experiments.at(id);
    if (!could_be_silent(experiment)) continue;
    Heard& heard = listened_.try_emplace(id, Heard{now_, now_}).first->second;
    if (std::holds_alternative<ReplicaStarted>(event)) heard.latest_ms = now_;
    const auto* const came = std::get_if<OutputCame>(&event);
    if (came != nullptr && came->experiment == id) heard = {now_, now_};
    const auto* const hello = std::get_if<HostConnected>(&event);
    const bool is_its_host = hello != nullptr && std::ranges::any_of(experiment.replicas, [&](const Replica& one) {
      return one.seat.host == hello->host.id && is_seated(experiment, one);
    });
    if (is_its_host) heard = {now_, now_};
    const bool one_begins = std::ranges::any_of(experiment.replicas, [&](const Replica& one) {
      return awaits_relaunch(experiment, one) || (is_alive(one) && one.progress < Progress::Started);
    });
    if (is_away(*model_, experiment) || one_begins) heard.latest_ms = now_;
    // A look before its time is none, and how often one comes is the daemon's to say.
    const bool is_look = std::holds_alternative<Tick>(event) && experiment.silence_due_ms > now_;
    heard.looks = !has_long_been_silent(experiment, heard) ? 0 : heard.looks + (is_look && now_ >= heard.looked_ms + 1'000);
    if (is_look && now_ >= heard.looked_ms + 1'000) heard.looked_ms = now_;
  }
  std::erase_if(listened_, [&](const auto& one) {
    const auto known = model_->experiments.find(one.first);
    return known == model_->experiments.end() || (!could_be_silent(known->second) && !known->second.failure);
  });
}

// All of them have been silent for long enough, and each of their hosts has said something since.
bool World::has_long_been_silent(const Experiment& experiment, const Heard& heard) const {
  const int64_t silent_for_ms = experiment.spec().silence_rule()->silent_for_ms;
  const TimeMs due_ms = heard.latest_ms + silent_for_ms + std::min<int64_t>(silent_for_ms / 8, 1'000);
  return now_ >= due_ms && std::ranges::all_of(experiment.replicas, [&](const Replica& replica) {
    return !holds_seat(experiment, replica) || model_->hosts.at(replica.seat.host).last_contact_ms >= due_ms;
  });
}

// Then they are ended for it, when it was looked at twice.
void World::check_silent(const Experiment& experiment) const {
  const auto heard = listened_.find(experiment.id);
  if (heard == listened_.end() || !could_be_silent(experiment) || is_away(*model_, experiment)) return;
  require(heard->second.looks < 3 || now_ < heard->second.latest_ms + experiment.spec().silence_rule()->silent_for_ms,
          [&] { return to_string(experiment.id) + " is silent and goes on"; });
}

void World::check_ended_for_silence(const ExperimentId& id) {
  const auto heard = listened_.find(id);
  require(heard != listened_.end() && now_ >= heard->second.surely_ms + model_->experiments.at(id).spec().silence_rule()->silent_for_ms,
          [&] { return to_string(id) + " is ended for its silence and was not silent"; });
  counts_.add(Seen::EndedForSilence);
}

std::map<ExperimentId, World::Failing> World::failing() const {
  std::map<ExperimentId, Failing> all;
  for (const ExperimentId& id : model_->live) {
    const Experiment& experiment = model_->experiments.at(id);
    if (experiment.failure) all[id] = {*experiment.failure, experiment.restarts_used, experiment.excluded_hosts, experiment.suspended};
  }
  return all;
}

// The number of the first rule that fits; the size of the policy: none does.
size_t World::told_rule(const Experiment& experiment, const Replica* cause) const {
  const auto& policy = experiment.spec().failure_policy;
  const int code = cause == nullptr || !cause->exit || cause->exit->lost_keeper ? 0 : exit_status(*cause->exit);
  size_t i = 0;
  for (; i < policy.size(); ++i) {
    if (policy[i].silent_for_ms != 0 && cause != nullptr) continue;
    if (policy[i].silent_for_ms == 0 && policy[i].printed.empty() && cause == nullptr) continue;
    const bool has_code = policy[i].exit_codes.empty() || std::ranges::count(policy[i].exit_codes, code) == 1;
    const bool has_line = policy[i].printed.empty() || std::ranges::any_of(experiment.replicas, [&](const Replica& one) { return has_printed(one, i); });
    if (has_code && has_line) break;
  }
  return i;
}

// What the failure of one comes to by itself, before the others have ended.
World::Verdict World::told_verdict(const Experiment& experiment, const Replica& cause) const {
  const auto& policy = experiment.spec().failure_policy;
  const size_t rule = told_rule(experiment, &cause);
  if (rule < policy.size()) {
    if (policy[rule].action == FailureAction::Fail) return Verdict::Fails;
    return policy[rule].action == FailureAction::Restart ? Verdict::Restarts : Verdict::Moves;
  }
  const OnFailure said = experiment.spec().role(cause.id.role)->on_failure;
  const bool gave_up = cause.exit && cause.exit->signal == 0 && cause.exit->code < 128 && !cause.exit->lost_keeper;
  if (said == OnFailure::Ignore) return Verdict::Ignored;
  return said == OnFailure::Restart || (said == OnFailure::RestartOnSignal && !gave_up) ? Verdict::Restarts : Verdict::Fails;
}

// Those that were failing before this event and are not any more: nothing of them is left, and they go on as they should.
void World::check_verdicts(const std::map<ExperimentId, Failing>& before) {
  for (const auto& [id, was] : before) {
    const auto known = model_->experiments.find(id);
    if (known == model_->experiments.end() || known->second.failure) continue;
    const Experiment& experiment = known->second;
    const auto name = [&, &whose = id] { return to_string(whose); };
    const bool other_end = experiment.outcome && (experiment.outcome->state == State::Killed ||
                                                  experiment.outcome->reason.find("its max-duration") != std::string::npos);
    if (other_end) continue;
    for (const Replica& replica : experiment.replicas) {
      const bool may_live = is_alive(replica) || (replica.lost && replica.lease_ms == 0 && replica.progress < Progress::Exited);
      require(!may_live || experiment.outcome, [&] { return to_string(replica.id) + " may live, and its failure is judged"; });
    }
    const auto cause = std::ranges::find_if(experiment.replicas, [&](const Replica& one) { return one.id == was.failure.cause; });
    const Replica* const of = cause == experiment.replicas.end() ? nullptr : &*cause;
    const auto& policy = experiment.spec().failure_policy;
    const size_t rule = told_rule(experiment, of);
    const Verdict verdict = of != nullptr ? told_verdict(experiment, *of) : policy.at(rule).action == FailureAction::Fail ? Verdict::Fails : policy[rule].action == FailureAction::Restart ? Verdict::Restarts : Verdict::Moves;
    require(verdict != Verdict::Ignored, [&] { return name() + " ends with one that may be ignored"; });
    const bool restarts = verdict != Verdict::Fails && was.restarts_used < static_cast<uint32_t>(experiment.spec().restarts_most());
    require(restarts == !experiment.outcome, [&] { return name() + (restarts ? " has another start" : " has no other start"); });
    if (!restarts) {
      counts_.add(Seen::FailedByPolicy);
      require(experiment.outcome->state == State::Failed && experiment.outcome->exit_code != 0 && experiment.outcome->cause == was.failure.cause,
              [&] { return name() + " is FAILED by whom it was"; });
      continue;
    }
    require(experiment.restarts_used == was.restarts_used + 1, [&] { return name() + " has one restart less"; });
    require(experiment.phase == Phase::None, [&] { return name() + " waits for its next attempt"; });
    if (verdict == Verdict::Restarts) {
      if (rule < policy.size()) counts_.add(Seen::RestartedByPolicy);
      require(experiment.excluded_hosts == was.excluded_hosts, [&] { return name() + " may go where it was"; });
      continue;
    }
    counts_.add(Seen::MovedByPolicy);
    std::set<HostId> blamed;
    for (const Replica& replica : experiment.replicas) {
      const bool is_it = policy[rule].printed.empty() ? &replica == of : has_printed(replica, rule);
      if (is_it) blamed.insert(replica.seat.host);
    }
    const auto& excluded = experiment.excluded_hosts;
    require(excluded.size() >= blamed.size() && !blamed.empty() && std::set<HostId>(excluded.end() - static_cast<long>(blamed.size()), excluded.end()) == blamed,
            [&] { return name() + " leaves the hosts that are to blame, and no others"; });
  }
}

}  // namespace dtrain::sim
