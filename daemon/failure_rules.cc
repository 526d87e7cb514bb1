#include "daemon/failure_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "schema/text_formats.h"

namespace dtrain::daemon {

namespace {

const std::string* line_of(const Replica& replica, size_t rule) {
  if (!replica.exit) return nullptr;
  for (const auto& [number, line] : replica.exit->printed) {
    if (number == rule) return &line;
  }
  return nullptr;
}

size_t index_of(const Spec& spec, const FailureRule& rule) { return static_cast<size_t>(&rule - spec.failure_policy.data()); }

bool is_watched(const Experiment& experiment) {
  if (experiment.phase != Phase::Go || experiment.outcome || experiment.is_shared()) return false;
  return experiment.spec().silence_rule() != nullptr && all_started(experiment);
}

}  // namespace

FittingRule rule_that_fits(const Experiment& experiment, const Replica* cause) {
  const std::vector<FailureRule>& policy = experiment.spec().failure_policy;
  for (size_t i = 0; i < policy.size(); ++i) {
    const FailureRule& rule = policy[i];
    if (rule.silent_for_ms != 0) {
      if (cause == nullptr) return {&rule};
      continue;
    }
    if (!rule.exit_codes.empty()) {
      const bool has_code = cause != nullptr && cause->exit && std::ranges::binary_search(rule.exit_codes, exit_status(*cause->exit));
      if (!has_code) continue;
    }
    if (rule.printed.empty() && cause == nullptr) continue;   // what is done about silence, its rule says
    if (rule.printed.empty()) return {&rule};
    for (const Replica& replica : experiment.replicas) {
      if (const std::string* const line = line_of(replica, i)) return {&rule, &replica, *line};
    }
  }
  return {};
}

std::string failure_text(const Failure& failure) {
  return failure.cause ? fmt::format("{}: {}", to_string(*failure.cause), failure.what) : failure.what;
}

std::vector<HostId> hosts_of_failure(const Experiment& experiment, const FittingRule& fits, const Replica* cause) {
  std::vector<HostId> hosts;
  const auto add = [&](const Replica& replica) {
    if (std::ranges::find(hosts, replica.seat.host) == hosts.end()) hosts.push_back(replica.seat.host);
  };
  if (fits.printer == nullptr && cause != nullptr) add(*cause);
  if (fits.printer == nullptr) return hosts;
  const size_t rule = index_of(experiment.spec(), *fits.rule);
  for (const Replica& replica : experiment.replicas) {
    if (line_of(replica, rule) != nullptr) add(replica);
  }
  return hosts;
}

void on_output_came(Turn& turn, const OutputCame& event) {
  const auto found = turn.model.experiments.find(event.experiment);
  if (found != turn.model.experiments.end()) found->second.heard_ms = turn.now;   // which nothing derived depends on
}

void hear(Experiment& experiment, TimeMs now) {
  if (!is_watched(experiment)) return;
  experiment.heard_ms = now;
  if (experiment.silence_due_ms == 0) experiment.silence_due_ms = now + experiment.spec().silence_rule()->silent_for_ms;
}

TimeMs silence_due_of(const Experiment& experiment) {
  return is_watched(experiment) ? experiment.silence_due_ms : 0;
}

bool is_silent(Turn& turn, Experiment& experiment) {
  const TimeMs due_ms = silence_due_of(experiment);
  if (due_ms == 0 || due_ms > turn.now) return false;
  if (!can_be_stopped(turn.model, experiment)) experiment.heard_ms = turn.now;
  const int64_t silent_for_ms = experiment.spec().silence_rule()->silent_for_ms;
  experiment.silence_due_ms = experiment.heard_ms + silent_for_ms;
  return experiment.silence_due_ms <= turn.now;
}

std::string silence_text(const Spec& spec) {
  return fmt::format("nothing was printed for {}", format_duration_ms(spec.silence_rule()->silent_for_ms));
}

}  // namespace dtrain::daemon
