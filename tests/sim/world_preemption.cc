// Who gives way to whom: told from the facts, and the room from every way there is to use it.
#include <algorithm>

#include "daemon/placement_elastic.h"
#include "daemon/preemption.h"
#include "daemon/queue.h"
#include "sim/room_search.h"
#include "sim/world.h"

namespace dtrain::sim {

using namespace daemon;

namespace {

bool ends_anyway(const Experiment& other) { return other.outcome || other.suspended || other.phase == Phase::Ending; }

}  // namespace

// Of the hosts that it may be placed on, once these are gone.
std::vector<Room> World::rooms_once_gone(const Experiment& waits, const std::set<ExperimentId>& gone) const {
  const Choice choice = choice_of(*model_, waits);
  std::map<HostId, Room> rooms;
  std::map<HostId, std::set<int>> gpus;   // one that a stranger uses may be in use here, too
  for (const auto& [id, free] : model_->free.all()) {
    if (!free.open || !may_use(choice, *free.host)) continue;
    rooms.emplace(id, whole(*free.host));
    for (const Gpu& gpu : free.host->gpus) {
      if (gpu.busy.empty()) gpus[id].insert(gpu.index);
    }
  }
  for (const auto& [id, experiment] : model_->experiments) {
    if (gone.contains(id)) continue;
    for (const Replica& replica : experiment.replicas) {
      const auto room = rooms.find(replica.seat.host);
      if (room == rooms.end() || experiment.over || !holds_seat(experiment, replica)) continue;
      room->second -= room_of(replica.seat);
      for (const int gpu : replica.seat.gpus) gpus[replica.seat.host].erase(gpu);
    }
  }
  std::vector<Room> left;
  for (auto& [id, room] : rooms) {
    room.gpus = static_cast<int>(gpus[id].size());
    left.push_back(room);
  }
  return left;
}

World::Favours World::favours_before(const std::vector<ExperimentId>& waited) const {
  Favours favours;
  for (const auto& [id, experiment] : model_->experiments) {
    if (may_give_way(experiment)) favours.could.emplace(id, experiment.restarts_used);
  }
  if (waited.empty()) return favours;
  const Experiment& first = model_->experiments.at(waited.front());
  const auto giving = model_->giving_way.find(first.id);
  if (first.regrows || giving == model_->giving_way.end()) return favours;
  // Of one with a host that is away nobody knows when it ends.
  std::set<ExperimentId> gone;
  for (const ExperimentId& id : giving->second) {
    if (can_be_stopped(*model_, model_->experiments.at(id))) gone.insert(id);
  }
  const LeastGang least(first.spec());
  FreeHosts free;
  for (const auto& [id, each] : model_->free.all()) free.put(each);
  for (const ExperimentId& id : gone) {
    for (const Replica& replica : model_->experiments.at(id).replicas) {
      if (holds_seat(model_->experiments.at(id), replica)) free.give(replica.seat);
    }
  }
  Choice choice = choice_of(*model_, first);
  choice.now = now_;
  if (fit(first.id, least.spec(), free, choice)) favours.first = first.id;
  return favours;
}

void World::check_give_way(const std::vector<ExperimentId>& waited, const Favours& before) {
  std::map<ExperimentId, std::set<ExperimentId>> gave_way;
  for (const auto& [id, restarts_used] : before.could) {
    const Experiment& experiment = model_->experiments.at(id);
    if (may_give_way(experiment) || !experiment.gave_way_to) continue;
    const Experiment& to = model_->experiments.at(*experiment.gave_way_to);
    const bool begins_again = experiment.phase == Phase::Ending || experiment.phase == Phase::None;
    require(experiment.spec().preemptible && begins_again && !experiment.outcome,
            [&, &who = id] { return to_string(who) + " may give way, and is begun again"; });
    require(is_queued(to) && to.spec().priority > experiment.spec().priority,
            [&, &who = id] { return fmt::format("{} gives way to {}, which waits and has a higher priority", to_string(who), to_string(to.id)); });
    require(experiment.restarts_used == restarts_used, [&, &who = id] { return to_string(who) + " gives way at no restart"; });
    require(can_be_stopped(*model_, experiment), [&, &who = id] { return to_string(who) + " is stopped, and does not hold up who it gives way to"; });
    gave_way[to.id].insert(id);
    counts_.add(Seen::GaveWay);
  }
  for (const auto& [to, who] : gave_way) {
    if (who.size() > 1) counts_.add(Seen::SeveralGaveWay);
    const Experiment& waits = model_->experiments.at(to);
    std::set<ExperimentId> gone = who;
    for (const auto& [id, other] : model_->experiments) {
      if (!other.over && ends_anyway(other)) gone.insert(id);
    }
    const LeastGang least(waits.spec());
    // Whose cpus are shared goes by other rules.
    if (stretch_needed(to, least.spec(), emptied(model_->free, Which::Connected), choice_of(*model_, waits)) > 1) continue;
    require(RoomSearch(least.spec(), rooms_once_gone(waits, gone)).run(),
            [&, &whose = to] { return "who gives way to " + to_string(whose) + " makes room enough"; });
  }
  for (const ExperimentId& id : waited) {
    const Experiment& experiment = model_->experiments.at(id);
    if (experiment.outcome || experiment.phase == Phase::None) continue;
    if (experiment.attempt > 1 && experiment.spec().preemptible && gave_way_.erase(id) > 0) counts_.add(Seen::WentOnAfterGivingWay);
    if (favoured_.erase(id) > 0) counts_.add(Seen::GotItsPlace);
    require(!experiment.gave_way_to, [&, &whose = id] { return to_string(whose) + " has its place again"; });
  }
  for (const auto& [to, who] : gave_way) {
    favoured_.insert(to);
    gave_way_.insert(who.begin(), who.end());
  }
  if (!before.first) return;
  const Experiment& first = model_->experiments.at(*before.first);
  const auto giving = model_->giving_way.find(first.id);
  if (!is_queued(first) || giving == model_->giving_way.end()) return;
  std::set<ExperimentId> gone(giving->second.begin(), giving->second.end());
  for (const auto& [id, other] : model_->experiments) {
    if (!other.over && ends_anyway(other)) gone.insert(id);
  }
  const LeastGang least(first.spec());
  require(RoomSearch(least.spec(), rooms_once_gone(first, gone)).run(),
          [&] { return "nobody takes what is kept for " + to_string(first.id) + ", to which others give way"; });
}

// The first that waits has others give way where that helps, as soon as it may.
void World::check_nobody_asks_in_vain() {
  const bool tick_due = !model_->deadlines.empty() && model_->deadlines.begin()->first <= now_;
  if (model_->place_wanted || tick_due || model_->preemptible.empty()) return;
  const std::vector<ExperimentId> waiting = waiting_in_order();
  if (waiting.empty()) return;
  const Experiment& first = model_->experiments.at(waiting.front());
  const bool may = !first.regrows && model_->regrowing.empty() && !first.is_shared() && !model_->giving_way.contains(first.id) && now_ >= model_->preempt_next_ms &&
                   now_ >= model_->hosts_awaited_until_ms && now_ >= first.preempts_from_ms && now_ >= model_->elastic_from_ms;
  if (!may) return;
  Choice choice = choice_of(*model_, first);
  choice.now = now_;
  const auto way = way_for(*model_, model_->free, {order_of(first), first.spec(), choice});
  require(!way, [&] { return fmt::format("{} waits, though {}", to_string(first.id), give_way_text(way->who)); });
}

}  // namespace dtrain::sim
