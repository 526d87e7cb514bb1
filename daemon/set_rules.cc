#include "daemon/set_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace dtrain::daemon {

namespace {

// Less is better, and what is no number is worse than all that is one.
double cost_of(const Search& search, double value) {
  if (std::isnan(value)) return std::numeric_limits<double>::infinity();
  return search.highest_is_best ? -value : value;
}

// Why one that comes to a rung with that value does not go on; empty: it does. It is not in the tally.
std::string why_ended(const Search& search, const SetTally& tally, uint32_t rung, double value) {
  const StopEarly& stop = *search.stop_early;
  const std::vector<double> none;
  const std::vector<double>& others = rung < tally.costs.size() ? tally.costs[rung] : none;
  const auto factor = static_cast<size_t>(stop.factor);
  const size_t came = others.size() + 1;
  if (came < factor) return "";   // too few to tell
  const double cost = cost_of(search, value);
  const auto better = static_cast<size_t>(std::lower_bound(others.begin(), others.end(), cost) - others.begin());
  const size_t go_on = (came + factor - 1) / factor;
  if (better < go_on && !std::isnan(value)) return "";
  const uint64_t at = stop.rung(rung);
  const std::string when = stop.by.empty() ? fmt::format("after {} value{}", at, at == 1 ? "" : "s") : fmt::format("by {}={}", stop.by, at);
  const std::string others_go_on = go_on == 1 ? "only the best goes on" : fmt::format("the best {} go on", go_on);
  const std::string place = std::isnan(value) ? "no number" : fmt::format("number {} of {}", better + 1, came);
  return fmt::format("ended early: {}={:.5g} {} is {}, and {}", search.metric, value, when, place, others_go_on);
}

}  // namespace

void on_rung_reached(Turn& turn, const RungReached& event) {
  const auto known = turn.model.experiments.find(event.experiment);
  if (known == turn.model.experiments.end() || event.experiment.member == 0) return;
  const Search& search = known->second.submission->spec.search;
  const size_t rungs = known->second.costs ? known->second.costs->size() : 0;
  if (known->second.over || !search.stop_early || event.rung != rungs) return;
  Experiment& experiment = *turn.touch(event.experiment);
  const std::string why = why_ended(search, turn.model.sets.at(experiment.id.number), event.rung, event.value);
  if (!experiment.costs) experiment.costs = std::vector<double>();
  experiment.costs->push_back(cost_of(search, event.value));
  if (why.empty() || experiment.outcome || experiment.failure) return;   // where it has ended already, others are still measured by it
  fix_outcome(turn, experiment, State::Finished, nullptr, why);
  experiment.outcome->early = true;
  settle(turn, experiment, false);
}

void end_failing_sets(Turn& turn) {
  std::set<uint32_t> failing;
  for (const ExperimentId& id : turn.ended) {
    const auto tally = turn.model.sets.find(id.number);
    if (tally == turn.model.sets.end() || state_of(turn.model.experiments.at(id)) != State::Failed) continue;
    const int most = turn.model.experiments.at(id).submission->spec.search.max_failed;
    const uint32_t failed = tally->second.by_state[static_cast<size_t>(State::Failed)];
    if (most != Search::kNoLimit && failed > static_cast<uint32_t>(most)) failing.insert(id.number);
  }
  for (const uint32_t number : failing) {
    for (const ExperimentId& id : live_of(turn.model, {number, 0})) {
      const Experiment& known = turn.model.experiments.at(id);
      if (known.outcome || known.is_shared()) continue;
      const int most = known.submission->spec.search.max_failed;
      Experiment& experiment = *turn.touch(id);
      fix_outcome(turn, experiment, State::Killed, nullptr,
                  fmt::format("more members of {} have failed than max-failed: {} allows", number, most));
      settle(turn, experiment, false);
    }
  }
}

}  // namespace dtrain::daemon
