#include "daemon/failure_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

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

// One of them that runs no more, or does not yet, while the others may wait for it.
bool is_between_launches(const Experiment& experiment, const Replica& replica) {
  return awaits_relaunch(experiment, replica) || (is_alive(replica) && replica.progress < Progress::Started);
}

TimeMs due_after(const Experiment& experiment) {
  return experiment.heard_ms + experiment.spec().silence_rule()->silent_for_ms + unheard_ms(experiment.spec());
}

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
      if (cause == nullptr) return {&rule, i};
      continue;
    }
    if (!rule.exit_codes.empty()) {
      const bool has_code = cause != nullptr && cause->exit && !cause->exit->lost_keeper &&
                            std::ranges::binary_search(rule.exit_codes, exit_status(*cause->exit));
      if (!has_code) continue;
    }
    if (rule.printed.empty() && cause == nullptr) continue;   // what is done about silence, its rule says
    if (rule.printed.empty()) return {&rule, i};
    FittingRule fits{&rule, i};
    for (const Replica& replica : experiment.replicas) {
      const std::string* const line = line_of(replica, i);
      if (line == nullptr || !fits.line.empty()) continue;
      fits.printer = &replica;
      fits.line = *line;
    }
    if (fits.printer != nullptr) return fits;
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
  for (const Replica& replica : experiment.replicas) {
    if (line_of(replica, fits.number) != nullptr) add(replica);
  }
  return hosts;
}

void keep_first_lines(const Experiment& experiment, Replica& replica) {
  for (auto& [rule, line] : replica.exit->printed) {
    const bool is_known = std::ranges::any_of(experiment.replicas, [&, number = rule](const Replica& other) {
      const std::string* const said = &other == &replica ? nullptr : line_of(other, number);
      return said != nullptr && !said->empty();
    });
    if (is_known) line.clear();
  }
}

void on_output_came(Turn& turn, const OutputCame& event) {
  const auto found = turn.model.experiments.find(event.experiment);
  if (found != turn.model.experiments.end()) found->second.heard_ms = turn.now;   // which nothing derived depends on
}

void hear(Experiment& experiment, TimeMs now) {
  if (!is_watched(experiment)) return;
  experiment.heard_ms = now;
  if (experiment.silence_due_ms == 0) experiment.silence_due_ms = due_after(experiment);
}

TimeMs silence_due_of(const Experiment& experiment) {
  return is_watched(experiment) ? experiment.silence_due_ms : 0;
}

bool look_for_silence(Turn& turn, Experiment& experiment) {
  constexpr int64_t kAgainMs = 1'000;
  const TimeMs looked_for_ms = silence_due_of(experiment);
  if (looked_for_ms == 0 || looked_for_ms > turn.now) return false;
  const bool one_begins = std::ranges::any_of(experiment.replicas, [&](const Replica& one) { return is_between_launches(experiment, one); });
  if (one_begins) experiment.heard_ms = turn.now;
  const TimeMs due_ms = due_after(experiment);
  const bool has_word = due_ms <= turn.now && std::ranges::all_of(experiment.replicas, [&](const Replica& one) {
    return !holds_seat(experiment, one) || turn.model.hosts.at(one.seat.host).last_contact_ms >= due_ms;
  });
  const bool had_word = std::exchange(experiment.silence_confirmed, has_word);
  if (has_word && had_word) return true;
  experiment.silence_due_ms = std::max(due_ms, turn.now + kAgainMs);
  return false;
}

int64_t unheard_ms(const Spec& spec) {
  const FailureRule* const rule = spec.silence_rule();
  return rule == nullptr ? 0 : std::min<int64_t>(rule->silent_for_ms / 8, 1'000);
}

std::string silence_text(const Spec& spec) {
  return fmt::format("nothing was printed for {}", format_duration_ms(spec.silence_rule()->silent_for_ms));
}

}  // namespace dtrain::daemon
