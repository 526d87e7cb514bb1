// Where gangs may go: not where something lacks, failed or is drained, and not ahead of who waits for the same room.
#include <algorithm>

#include "daemon/placement_elastic.h"
#include "daemon/placement_fitness.h"
#include "daemon/queue.h"
#include "sim/room_search.h"
#include "sim/world.h"

namespace dtrain::sim {

using namespace daemon;

std::optional<World::Stopped> World::being_unfit(const Event& event) const {
  const auto* failed = std::get_if<LaunchFailed>(&event);
  if (failed == nullptr || !failed->unfit || !concerns_anybody(*failed)) return std::nullopt;
  const Experiment& experiment = model_->experiments.at(failed->launch.experiment);
  if (experiment.outcome) return std::nullopt;
  return Stopped{experiment.id, experiment.restarts_used, experiment.start_failures};
}

void World::check_unfit(const Stopped& before, const HostId& host) {
  counts_.add(Seen::HostUnfit);
  said_unfit_[host].insert(before.id);
  const Experiment& experiment = model_->experiments.at(before.id);
  require(is_unfit(experiment, host), "a host that is unfit is remembered");
  require(experiment.restarts_used == before.restarts_used &&
              experiment.start_failures == before.start_failures,
          "what a host lacks costs no restart and is no failed start");
}

// What a host said counts until it says Hello anew; and nobody waits for a host that can't be.
void World::check_fitness() const {
  const bool tick_due = !model_->deadlines.empty() && model_->deadlines.begin()->first <= now_;
  for (const auto& [host, ids] : model_->unfit) {
    const auto said = said_unfit_.find(host);
    for (const ExperimentId& id : ids) {
      require(said != said_unfit_.end() && said->second.contains(id),
              "only who said so, since its Hello, is unfit");
    }
    for (const ExperimentId& id : ids) {
      const Experiment& experiment = model_->experiments.at(id);
      require(model_->place_wanted || tick_due || !is_queued(experiment) ||
                  !has_no_host_left(*model_, experiment, now_),
              [&] { return to_string(id) + " waits for no host at all"; });
    }
  }
}

// Failed for want of a host: then none that is known would do even empty, and others had time to come.
void World::check_given_up(const Experiment& experiment) {
  if (!experiment.outcome || !experiment.outcome->reason.ends_with("in dtrain.yml")) return;
  if (!given_up_.insert(experiment.id).second) return;
  counts_.add(Seen::UnfitEverywhere);
  require(restarted_ms_ == 0 || now_ >= restarted_ms_ + 10'000,
          "nobody is given up while hosts may yet come back");
  const Choice choice{experiment.submission->host, unfit_hosts(experiment), nullptr};
  require(stretch_needed(experiment.id, LeastGang(experiment.spec()).spec(), emptied(model_->free, Which::Known), choice) == 0,
          "nobody is given up whom a host could still take");
}

// Of a gang that was just placed.
void World::check_ports(const Experiment& experiment) const {
  for (const Replica& replica : experiment.replicas) {
    const auto taken = taken_ports_.find(replica.seat.host);
    if (is_build(replica) || taken == taken_ports_.end()) continue;
    const auto port = taken->second.find(replica.seat.port);
    require(port == taken->second.end() || port->second + policy_.port_quarantine_ms <= now_,
            [&] { return to_string(replica.id) + " is given a port that is taken"; });
  }
}

// Those placed in this pass: a host where starts failed is used when no other could take it, and of
// several the one that failed last only when nothing else is left at all.
void World::check_avoided(const std::vector<ExperimentId>& waited) {
  for (const ExperimentId& id : waited) {
    const Experiment& experiment = model_->experiments.at(id);
    const std::vector<HostId>& excluded = experiment.excluded_hosts;
    if (is_queued(experiment)) continue;
    if (!experiment.outcome) check_ports(experiment);
    for (const Replica& replica : experiment.replicas) {
      require(experiment.outcome || !is_unfit(experiment, replica.seat.host),
              "no gang is placed where what it names is known to be lacking");
      require(experiment.outcome || !drained_.contains(replica.seat.host), "nothing is placed on a drained host");
    }
    if (experiment.unfit_hosts && !experiment.outcome) counts_.add(Seen::UnfitLeft);
    if (excluded.empty() || experiment.outcome) continue;
    const FreeHosts empty = emptied(model_->free, Which::Connected);
    const auto others_could = [&, &whose = id](std::vector<HostId> without) {
      for (const HostId& unfit : unfit_hosts(experiment)) without.push_back(unfit);
      const Choice choice{experiment.submission->host, std::move(without), nullptr};
      return stretch_needed(whose, LeastGang(experiment.spec()).spec(), empty, choice) > 0;
    };
    bool used = false, used_last = false;
    for (const Replica& replica : experiment.replicas) {
      used |= std::find(excluded.begin(), excluded.end(), replica.seat.host) != excluded.end();
      used_last |= excluded.back() == replica.seat.host;
    }
    if (used) counts_.add(Seen::ExcludedTriedAgain);
    require(!used || !others_could(excluded),
            "no gang is placed on a host that was excluded for it while others could take it");
    require(!used_last || !others_could({excluded.back()}),
            "the host that failed last is the last to be tried again");
  }
}

std::vector<ExperimentId> World::waiting_in_order() const {
  std::vector<ExperimentId> waiting;
  for (const ExperimentId& id : model_->live) {
    if (is_queued(model_->experiments.at(id))) waiting.push_back(id);
  }
  return in_turn(std::move(waiting), each_has(), model_->regrowing);
}

// The first that still waits, though empty hosts would take it, finds room once all that ran before
// this pass is gone: who was placed behind it took nothing away for good.
void World::check_backfill(const std::vector<ExperimentId>& waited) {
  const FreeHosts empty = emptied(model_->free, Which::Connected);
  auto head = waited.begin();
  for (; head != waited.end(); ++head) {
    const Experiment& experiment = model_->experiments.at(*head);
    if (!is_queued(experiment)) continue;
    const double stretch =
        stretch_needed(*head, LeastGang(experiment.spec()).spec(), empty, choice_of(*model_, experiment));
    if (stretch > 1) return;  // waits for hosts that are idle, whose cpus it will share
    if (stretch > 0) break;
  }
  if (head == waited.end() || is_behind_in_quota(model_->experiments.at(*head))) return;
  std::map<HostId, Room> rooms;
  const Experiment& waits = model_->experiments.at(*head);
  check_quota_of_head(waits, waited);
  const Choice choice = choice_of(*model_, waits);
  for (const auto& [id, free] : empty.all()) {
    if (may_use(choice, *free.host)) rooms.emplace(id, whole(*free.host));
  }
  bool any = false;
  for (auto behind = head + 1; behind != waited.end(); ++behind) {
    const Experiment& experiment = model_->experiments.at(*behind);
    if (is_queued(experiment) || experiment.outcome) continue;
    any = true;
    if (experiment.spec().max_duration_ms > 0) continue;  // may end in time
    for (const Replica& replica : experiment.replicas) {
      const auto room = rooms.find(replica.seat.host);
      if (room == rooms.end() || is_build(replica)) continue;
      room->second -= room_of(replica.seat);
    }
  }
  if (!any) return;
  counts_.add(Seen::WentAhead);
  std::vector<Room> left;
  for (const auto& [id, room] : rooms) left.push_back(room);
  const LeastGang least(waits.spec());
  require(RoomSearch(least.spec(), std::move(left)).run(),
          [&] { return "who goes ahead of " + to_string(*head) + " takes nothing it waits for"; });
}

}  // namespace dtrain::sim
