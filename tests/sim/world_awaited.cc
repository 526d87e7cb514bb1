// Who comes after others, and that they wait for them: told from the experiments alone.
#include <algorithm>

#include "sim/world.h"

namespace dtrain::sim {

using namespace daemon;

namespace {

std::vector<const Experiment*> named(const Model& model, const ExperimentId& id) {
  std::vector<const Experiment*> found;
  for (const auto& [each, experiment] : model.experiments) {
    if (each.number == id.number && (id.member == 0 || each == id)) found.push_back(&experiment);
  }
  return found;
}

bool lives(const Model& model, const ExperimentId& id) {
  const auto all = named(model, id);
  return std::any_of(all.begin(), all.end(), [](const Experiment* each) { return !each->over; });
}

// Of what is over: FINISHED if any member is, but not a set that was killed as a whole, or of which more failed than may.
bool has_finished(const Model& model, const ExperimentId& id) {
  const auto all = named(model, id);
  const auto count = [&](auto is) { return std::ranges::count_if(all, [&](const Experiment* each) { return each->id.member > 0 && is(*each->outcome); }); };
  const int most = all.empty() ? Search::kNoLimit : all.front()->submission->spec.search.max_failed;
  const bool too_many = most != Search::kNoLimit && count([](const Outcome& end) { return end.state == State::Failed; }) > most;
  if (id.member == 0 && (too_many || count([](const Outcome& end) { return end.with_set; }) > 0)) return false;
  return std::any_of(all.begin(), all.end(), [](const Experiment* each) {
    return !each->is_shared() && each->outcome->state == State::Finished;
  });
}

}  // namespace

// As the daemon takes it: what is to have finished has, or lives.
void World::come_after_others(Spec& spec) {
  if (model_->experiments.empty() || !chance(15)) return;
  for (size_t count = 1 + below(3); count > 0; --count) {
    auto chosen = model_->experiments.begin();
    std::advance(chosen, static_cast<long>(below(model_->experiments.size())));
    const ExperimentId id = chance(40) || chosen->second.is_shared() ? chosen->first.set() : chosen->first;
    if (chance(30)) {
      spec.after_end.push_back(id);
    } else if (lives(*model_, id) || has_finished(*model_, id)) {
      spec.after.push_back(id);
    }
  }
}

void World::check_awaited() {
  std::map<ExperimentId, std::set<uint32_t>> awaited;
  for (const ExperimentId& id : model_->live) {
    const Experiment& experiment = model_->experiments.at(id);
    const Spec& spec = experiment.submission->spec;
    bool awaits = false;
    const auto look_at = [&](const ExperimentId& other) {
      if (!lives(*model_, other)) return;
      awaits = true;
      awaited[other].insert(id.number);
    };
    std::for_each(spec.after.begin(), spec.after.end(), look_at);
    std::for_each(spec.after_end.begin(), spec.after_end.end(), look_at);
    require(experiment.awaits == awaits, [&] { return to_string(id) + " waits as long as one lives that it comes after"; });
    require(!awaits || (experiment.phase == Phase::None && experiment.attempt == 0),
            [&] { return to_string(id) + " has a place, and comes after one that lives"; });
    for (const ExperimentId& other : spec.after) {
      if (lives(*model_, other) || named(*model_, other).empty()) continue;
      require(has_finished(*model_, other), [&] { return fmt::format("{} lives, and was to come after {}", to_string(id), to_string(other)); });
      if (experiment.phase != Phase::None) counts_.add(Seen::CameAfter);
    }
  }
  require(awaited == model_->awaited, "who is told of whose end follows from the facts");
}

// Its end has no other cause than that of one that it names.
void World::check_came_after(const Experiment& experiment) {
  const std::vector<ExperimentId>& after = experiment.submission->spec.after;
  const bool fails = std::any_of(after.begin(), after.end(), [&](const ExperimentId& other) {
    return !named(*model_, other).empty() && !lives(*model_, other) && !has_finished(*model_, other);
  });
  require(fails && experiment.attempt == 0, [&] { return to_string(experiment.id) + " fails for one that it comes after"; });
  counts_.add(Seen::FailedWithOther);
}

}  // namespace dtrain::sim
