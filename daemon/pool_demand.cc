#include "daemon/pool_demand.h"

#include <algorithm>
#include <deque>

#include "daemon/fair_share.h"
#include "daemon/placement_elastic.h"
#include "daemon/queue.h"
#include "daemon/quota.h"

namespace dtrain::daemon {

namespace {

// Of what waits, the first so many are looked at: what is asked for them is enough to begin with.
constexpr size_t kLooks = 64;

std::vector<ExperimentId> first_in_order(const Model& model) {
  std::vector<const Experiment*> waiting;
  for (const auto& [lane, orders] : model.queue.lanes) {
    size_t looked_at = 0;
    if (!over_quota_text(model, model.experiments.at(orders.begin()->id)).empty()) continue;   // and so are those behind it
    for (auto it = orders.begin(); it != orders.end() && looked_at < kLooks; ++it, ++looked_at) waiting.push_back(&model.experiments.at(it->id));
  }
  const FairShare share(model);
  const auto middle = waiting.begin() + static_cast<std::ptrdiff_t>(std::min(kLooks, waiting.size()));
  std::partial_sort(waiting.begin(), middle, waiting.end(), [&](const Experiment* a, const Experiment* b) { return share.goes_before(*a, *b); });
  std::vector<ExperimentId> first;
  for (auto it = waiting.begin(); it != middle; ++it) first.push_back((*it)->id);
  return first;
}

// Hosts as if they were here, of which seats can be taken.
class Imagined {
 public:
  FreeHost one(const Pool& pool, uint32_t allocation) {
    hosts_.push_back(potential_host(pool, next_++));
    FreeHost free;
    free.host = &hosts_.back();
    free.open = true;
    free.cpus = pool.cpus;
    free.memory_bytes = static_cast<int64_t>(pool.memory_bytes);
    for (int gpu = 0; gpu < pool.gpus; ++gpu) free.gpus.push_back(gpu);
    allocations_[hosts_.back().id] = allocation;
    return free;
  }
  uint32_t allocation_of(const HostId& host) const { return allocations_.at(host); }

 private:
  std::deque<Host> hosts_;
  std::map<HostId, uint32_t> allocations_;
  int next_ = 1;
};

struct Gang {
  const Experiment& experiment;
  const Choice& choice;
};

// The hosts that have seats of the gang, less what it takes of them.
std::vector<FreeHost> taken_by(const std::vector<Seat>& seats, FreeHosts& fresh) {
  std::map<HostId, FreeHost> hosts;
  for (const Seat& seat : seats) fresh.take(seat);
  for (const Seat& seat : seats) hosts.try_emplace(seat.host, *fresh.find(seat.host));
  std::vector<FreeHost> listed;
  for (const auto& [id, free] : hosts) listed.push_back(free);
  return listed;
}

// The least hosts of a pool, none more than `most`, that the gang fits on alone, or where they are too few those that
// the largest elastic one takes; less what it takes of them.
std::vector<FreeHost> least_hosts(const Gang& gang, const Pool& pool, int most, Imagined& imagined) {
  const Spec& spec = gang.experiment.spec();
  FreeHosts fresh;
  for (int count = 1; count <= most; ++count) {
    fresh.put(imagined.one(pool, 0));
    if (const auto seats = fit(gang.experiment.id, spec, fresh, gang.choice)) return taken_by(*seats, fresh);
  }
  if (!spec.elastic) return {};
  const auto fewer = fit_largest(gang.experiment.id, spec, fresh, gang.choice);
  return fewer ? taken_by(*fewer, fresh) : std::vector<FreeHost>();
}

}  // namespace

Demand demand_on_pools(const Model& model, const std::vector<Coming>& coming, const std::map<std::string, int>& taken,
                       const std::set<std::string>& closed, TimeMs now) {
  Demand demand;
  Imagined imagined;
  FreeHosts promised;
  std::map<std::string, int> left;
  for (const auto& [name, pool] : model.pools) {
    const auto known = taken.find(name);
    left[name] = pool.hosts_max - (known == taken.end() ? 0 : known->second);
  }
  for (const Coming& one : coming) {
    const Pool& pool = model.pools.at(one.pool);
    for (int i = 0; i < one.hosts; ++i) promised.put(imagined.one(pool, one.allocation));
  }
  KeptQuota quotas(model);
  for (const ExperimentId& id : first_in_order(model)) {
    if (model.giving_way.contains(id)) continue;   // those that do may need a host then
    const Experiment& experiment = model.experiments.at(id);
    if (quotas.is_over(experiment)) continue;
    Choice choice = choice_of(model, experiment);
    choice.quota_left = quotas.left_for(experiment);
    choice.now = now;
    const LeastGang least(experiment.spec());
    if (fit(id, least.spec(), model.free, choice)) {   // it is about to be placed, or others are ahead
      quotas.keep(experiment);
      continue;
    }
    if (const auto seats = fit_largest(id, experiment.spec(), promised, choice)) {
      quotas.keep_all(experiment);
      for (const Seat& seat : *seats) {
        promised.take(seat);
        demand.awaited.insert(imagined.allocation_of(seat.host));
      }
      continue;
    }
    bool asked = false;
    std::string exhausted;
    for (auto it = model.pools.begin(); it != model.pools.end() && !asked; ++it) {
      const auto& [name, pool] = *it;
      const Gang gang{experiment, choice};
      auto hosts = least_hosts(gang, pool, pool.hosts_max, imagined);
      if (experiment.spec().elastic && static_cast<int>(hosts.size()) > left.at(name)) {
        if (auto fewer = least_hosts(gang, pool, left.at(name), imagined); !fewer.empty()) hosts = std::move(fewer);
      }
      if (hosts.empty()) continue;
      const int count = static_cast<int>(hosts.size());
      if (count > left.at(name)) {
        if (exhausted.empty()) exhausted = name;
        continue;
      }
      if (closed.contains(name)) {
        demand.refused.emplace(id, name);
        continue;
      }
      demand.asks.push_back({name, count, id});
      quotas.keep_all(experiment);
      left.at(name) -= count;
      for (const FreeHost& host : hosts) promised.put(host);
      asked = true;
    }
    if (asked || exhausted.empty()) continue;
    demand.exhausted.emplace(id, exhausted);
    left.at(exhausted) = 0;   // nobody behind it takes what it waits for
  }
  demand.awaited.erase(0);
  return demand;
}

}  // namespace dtrain::daemon
