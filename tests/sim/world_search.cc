// What sets end by their search: told from the members alone, the values that they had kept beside the model.
#include <algorithm>
#include <cmath>

#include "sim/world.h"

namespace dtrain::sim {

using namespace daemon;

namespace {

size_t failed_members(const Model& model, uint32_t number) {
  const auto first = model.experiments.lower_bound({number, 1}), last = model.experiments.upper_bound({number, UINT32_MAX});
  return static_cast<size_t>(std::count_if(first, last, [](const auto& each) {
    return each.second.over && each.second.outcome->state == State::Failed;
  }));
}

bool is_better(const Spec& spec, double a, double b) {
  if (std::isnan(b)) return !std::isnan(a);
  return spec.search.highest_is_best ? a > b : a < b;
}

}  // namespace

void World::search(Spec& spec) {
  if (chance(30)) spec.search.max_failed = static_cast<int>(below(3));
  if (chance(50)) return;
  spec.search.metric = "loss";
  spec.search.highest_is_best = chance(50);
  spec.search.stop_early = StopEarly{1, 2 + static_cast<int>(below(2)), ""};
}

// A member says a value, seldom one that it has said before or is not to say yet.
void World::reach_rung() {
  std::vector<ExperimentId> looked_at;
  for (const ExperimentId& each : model_->live) {
    if (chance(5) || (each.member > 0 && model_->experiments.at(each).submission->spec.search.stop_early)) looked_at.push_back(each);
  }
  if (looked_at.empty()) return;
  const ExperimentId id = looked_at[below(looked_at.size())];
  const Experiment& experiment = model_->experiments.at(id);
  const Spec& spec = experiment.submission->spec;
  const size_t had = experiment.costs ? experiment.costs->size() : 0;
  const size_t rung = chance(90) ? had : below(4);
  const double value = chance(10) ? std::nan("") : static_cast<double>(below(6));
  const bool counts = id.member != 0 && spec.search.stop_early && rung == had;
  const bool was_failing = experiment.failure.has_value();
  const std::optional<Outcome> ended = experiment.outcome ? std::optional(*experiment.outcome) : std::nullopt;
  // Of those that came so far, and are as good or better.
  size_t came = 1, better = 0;
  for (const auto& [other, values] : said_) {
    if (other.number != id.number || other == id || values.size() <= rung) continue;
    ++came;
    better += is_better(spec, values[rung], value);
  }
  note("rung {} of {}: {}", rung, to_string(id), value);
  happen(RungReached{id, static_cast<uint32_t>(rung), value});
  const Experiment& after = model_->experiments.at(id);
  if (!counts) {
    const size_t has = after.costs ? after.costs->size() : 0;
    require(has == had, [&] { return "what " + to_string(id) + " says out of its turn counts for nothing"; });
    return;
  }
  said_[id].push_back(value);
  if (was_failing) return require(!after.outcome, "who is about to fail is not ended for its values");
  if (ended) return require(*after.outcome == *ended, "an end is not changed by what comes after");
  const auto factor = static_cast<size_t>(spec.search.stop_early->factor);
  const bool among_best = better * factor < came && !std::isnan(value);
  const bool ends = came >= factor && !among_best;
  require(after.outcome.has_value() == ends, [&] { return fmt::format("{} goes on if it is among the best: {} of {}", to_string(id), better, came); });
  require(!ends || (after.outcome->early && after.outcome->state == State::Finished), "who ends early is FINISHED");
  for (const Replica& replica : after.replicas) {
    require(!ends || !is_alive(replica) || replica.stop_sent, "who ends early has no grace to finish in");
  }
  counts_.add(ends ? Seen::EndedEarly : Seen::AmongTheBest);
}

void World::check_search() {
  std::set<uint32_t> sets;
  for (const ExperimentId& id : model_->live) {
    const Experiment& experiment = model_->experiments.at(id);
    const int most = experiment.submission->spec.search.max_failed;
    if (id.member == 0 || experiment.outcome || most == Search::kNoLimit || !sets.insert(id.number).second) continue;
    require(failed_members(*model_, id.number) <= static_cast<size_t>(most),
            [&] { return to_string(id) + " goes on, and more members have failed than may"; });
  }
}

// Nobody killed it: more members failed than may.
void World::check_killed_by_set(const Experiment& experiment) const {
  const int most = experiment.submission->spec.search.max_failed;
  require(experiment.id.member > 0 && most != Search::kNoLimit &&
              failed_members(*model_, experiment.id.number) > static_cast<size_t>(most),
          "only who was killed is KILLED");
}

// A daemon knows of each member what its last row has.
void World::forget_unsaid() {
  for (auto& [id, values] : said_) {
    const auto row = rows_.find(id);
    values.resize(row != rows_.end() && row->second.costs ? row->second.costs->size() : 0);
  }
}

}  // namespace dtrain::sim
