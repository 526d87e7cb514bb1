// That of one priority it is the turn of whose user has least.
#include <algorithm>

#include "daemon/placement_elastic.h"
#include "daemon/queue.h"
#include "daemon/supposition.h"
#include "sim/world.h"

namespace dtrain::sim {

using namespace daemon;

namespace {

void add(auto& has, const Experiment& experiment) {
  for (const Replica& replica : experiment.replicas) {
    if (!holds_seat(experiment, replica)) continue;
    has.cpus += static_cast<int64_t>(replica.seat.cpus * 1'000 + 0.5);
    has.memory_bytes += static_cast<int64_t>(replica.seat.memory_bytes);
    has.gpus += static_cast<int64_t>(replica.seat.gpus.size());
  }
}

bool is_placed(const Experiment& experiment) { return !is_queued(experiment) && !experiment.outcome; }

}  // namespace

void World::make_fair_share() {
  if (chance(60)) return;
  if (chance(50)) fair_share_.push_back({"anna", static_cast<double>(1 + below(3))});
  if (fair_share_.empty() || chance(30)) fair_share_.push_back({"", static_cast<double>(1 + below(3)) / 2});
}

// In parts of all hosts that are here, by the user's weight.
double World::share_of(const Experiment& experiment, const EachHas& has) const {
  double weight = 1;
  for (const Weight& one : fair_share_) {
    if (one.user.empty() || one.user == experiment.submission->user) {
      weight = one.weight;
      break;
    }
  }
  UserHas all;
  for (const auto& [id, host] : model_->hosts) {
    if (!host.connected) continue;
    all.cpus += static_cast<int64_t>(host.cpus * 1'000 + 0.5);
    all.memory_bytes += static_cast<int64_t>(host.memory_bytes);
    all.gpus += static_cast<int64_t>(host.gpus.size());
  }
  const auto of = [&](int64_t UserHas::*what) {
    double sum = 0;
    for (const bool preemptible : {false, true}) {
      const auto found = has.find({experiment.submission->user, preemptible});
      if (found != has.end() && (!preemptible || experiment.spec().preemptible)) sum += static_cast<double>(found->second.*what);
    }
    return all.*what > 0 ? sum / static_cast<double>(all.*what) : 0.0;
  };
  return std::max({of(&UserHas::cpus), of(&UserHas::memory_bytes), of(&UserHas::gpus)}) / weight;
}

World::EachHas World::each_has() const {
  EachHas has;
  for (const ExperimentId& id : model_->live) {
    const Experiment& experiment = model_->experiments.at(id);
    if (!experiment.is_shared()) add(has[{experiment.submission->user, experiment.spec().preemptible}], experiment);
  }
  return has;
}

// Those that have been placed since `has` was counted take theirs when it is their turn. `regrowing` as it was then.
std::vector<ExperimentId> World::in_turn(std::vector<ExperimentId> waiting, EachHas has, const std::set<QueueOrder>& regrowing) const {
  std::map<ExperimentId, QueueOrder> orders;
  for (const ExperimentId& id : waiting) orders[id] = {100 - model_->experiments.at(id).spec().priority, id};
  for (const QueueOrder& order : regrowing) orders[order.id] = order;
  const auto is_sooner = [&](const ExperimentId& a, const ExperimentId& b) {
    const Experiment& one = model_->experiments.at(a);
    const Experiment& other = model_->experiments.at(b);
    if (orders.at(a).behind != orders.at(b).behind || fair_share_.empty()) return orders.at(a) < orders.at(b);
    const double share = share_of(one, has), other_share = share_of(other, has);
    // The core counts in other units.
    return std::abs(share - other_share) > 1e-9 ? share < other_share : a < b;
  };
  std::vector<ExperimentId> order;
  while (!waiting.empty()) {
    const auto first = std::min_element(waiting.begin(), waiting.end(), is_sooner);
    const Experiment& experiment = model_->experiments.at(*first);
    if (is_placed(experiment) && !experiment.is_shared()) add(has[{experiment.submission->user, experiment.spec().preemptible}], experiment);
    order.push_back(*first);
    waiting.erase(first);
  }
  return order;
}

// Who was first and waits still had no room, not even where those behind it are by now.
void World::check_turns(const std::vector<ExperimentId>& in_turn, const Sizes& before, EachHas had) {
  if (fair_share_.empty()) return;
  for (const ExperimentId& id : in_turn) {
    const Experiment& experiment = model_->experiments.at(id);
    if (is_placed(experiment) && !experiment.is_shared()) add(had[{experiment.submission->user, experiment.spec().preemptible}], experiment);
  }
  EachHas has = each_has();
  for (const auto& [whose, sum] : had) has.try_emplace(whose);
  if (had != has) return;   // some gave way, and went at once, after the pass
  const auto waits = std::ranges::find_if(in_turn, [&](const ExperimentId& id) { return is_queued(model_->experiments.at(id)); });
  if (waits == in_turn.end()) return;
  const Experiment& first = model_->experiments.at(*waits);
  // So may a TensorBoard of a set have, which is of nobody's share.
  if (std::ranges::any_of(model_->experiments, [&](const auto& other) { return other.second.gave_way_to == first.id; })) return;
  Supposition supposed(model_->free);
  for (auto behind = waits + 1; behind != in_turn.end(); ++behind) {
    const Experiment& other = model_->experiments.at(*behind);
    if (is_placed(other)) supposed.give_all(other);
  }
  for (auto ahead = in_turn.begin(); ahead != waits; ++ahead) {
    const Experiment& other = model_->experiments.at(*ahead);
    if (is_placed(other) && order_of(first) < order_of(other)) counts_.add(Seen::LessShareFirst);
  }
  const bool follows_other_rules = !before.regrowing.empty() || first.spec().elastic || !quotas_.empty();
  if (follows_other_rules) return;
  Choice choice = choice_of(*model_, first);
  choice.now = now_;
  require(!fit(first.id, first.spec(), model_->free, choice), [&] { return to_string(first.id) + " is first, and others have the room that it could have had"; });
}

}  // namespace dtrain::sim
