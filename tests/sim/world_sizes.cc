// Elastic gangs: who begins with fewer workers, and who is begun again for more.
#include <algorithm>

#include "daemon/placement_elastic.h"
#include "sim/world.h"

namespace dtrain::sim {

using namespace daemon;

// Who was placed with fewer workers in this pass, and who is begun again for more of them.
void World::check_sizes(const std::vector<ExperimentId>& waited, const Sizes& before) {
  for (const ExperimentId& id : waited) {
    const Experiment& experiment = model_->experiments.at(id);
    if (experiment.outcome || experiment.phase == Phase::None) continue;
    if (const auto regrown = regrown_.find(id); regrown != regrown_.end()) {
      require(missing_workers(experiment) < regrown->second, [&, &whose = id] { return to_string(whose) + " is begun again for more workers, and has them"; });
      counts_.add(Seen::HasGrown);
      regrown_.erase(regrown);
    }
    if (missing_workers(experiment) == 0) continue;
    counts_.add(Seen::BegunWithFewer);
    const bool regrew = std::any_of(before.regrowing.begin(), before.regrowing.end(), [&](const QueueOrder& one) { return one.id == id; });
    require(regrew || now_ >= before.elastic_from_ms, "nobody begins with fewer workers while hosts may yet come");
    if (before.had_lost.contains(id)) counts_.add(Seen::WentOnWithFewer);
  }
  for (const QueueOrder& order : before.growing) {
    const Experiment& experiment = model_->experiments.at(order.id);
    if ((experiment.phase != Phase::Ending && experiment.phase != Phase::None) || experiment.gave_way_to) continue;
    counts_.add(Seen::Grown);
    regrown_[order.id] = missing_workers(experiment);
    require(experiment.grows_from_ms == 0, "nobody grows before its time");
  }
}

World::Sizes World::sizes(const std::vector<ExperimentId>& waited) {
  std::erase_if(regrown_, [&](const auto& one) {   // suspended, killed, forgotten
    const auto known = model_->experiments.find(one.first);
    return known == model_->experiments.end() || !known->second.regrows;
  });
  Sizes sizes{model_->growing, {}, model_->elastic_from_ms, model_->regrowing};
  for (const ExperimentId& id : waited) {
    const auto& replicas = model_->experiments.at(id).replicas;
    const auto lost = [](const Replica& replica) { return replica.id.role == Role::Worker && replica.lost; };
    if (std::any_of(replicas.begin(), replicas.end(), lost)) sizes.had_lost.insert(id);
  }
  return sizes;
}

}  // namespace dtrain::sim
