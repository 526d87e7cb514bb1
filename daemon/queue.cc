#include "daemon/queue.h"

#include <fmt/format.h>

#include "daemon/fair_share.h"
#include "daemon/placement_elastic.h"
#include "daemon/placement_fitness.h"
#include "daemon/quota.h"
#include "schema/tensorboard.h"

namespace dtrain::daemon {

namespace {

// Not on its excluded hosts, but for the first `readmitted`, nor on those that are unfit; whatever its user has.
Choice anywhere(const Model& model, const Experiment& experiment, size_t readmitted) {
  const auto& excluded = experiment.excluded_hosts;
  Choice choice{experiment.submission->host, unfit_hosts(experiment), nullptr, lane_of(model, experiment)};
  choice.excluded.insert(choice.excluded.end(), excluded.begin() + static_cast<long>(readmitted),
                         excluded.end());
  return choice;
}

// As few hosts are readmitted as the gang needs to find room at all; all when it finds none.
Queue::Prospect prospect(const Model& model, const Experiment& experiment) {
  const FreeHosts empty = emptied(model.free, obtainable(model.free, anywhere(model, experiment, 0)));
  const LeastGang least(experiment.spec());
  const auto with = [&](size_t readmitted) -> Queue::Prospect {
    return {readmitted, stretch_needed(experiment.id, least.spec(), empty, anywhere(model, experiment, readmitted))};
  };
  Queue::Prospect best = with(0);
  size_t low = 1, high = experiment.excluded_hosts.size();
  if (best.stretch > 0 || high == 0) return best;
  best = with(high);
  if (best.stretch == 0) return best;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    const Queue::Prospect tried = with(middle);
    if (tried.stretch > 0) {
      best = tried;
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return best;
}

}  // namespace

QueueOrder order_of(const Experiment& experiment) {
  constexpr int kFirst = -1;
  return {experiment.regrows ? kFirst : 100 - experiment.spec().priority, experiment.id};
}

Choice choice_with(const Model& model, const Experiment& experiment, size_t readmitted) {
  Choice choice = anywhere(model, experiment, readmitted);
  choice.quota_left = quota_left(model, experiment);
  return choice;
}

Choice choice_of(const Model& model, const Experiment& experiment) {
  if (experiment.excluded_hosts.empty()) return choice_with(model, experiment, 0);
  return choice_with(model, experiment, prospect(model, experiment).readmitted);
}

std::string lane_of(const Model& model, const Experiment& experiment) {
  const Spec& spec = experiment.spec();
  std::string lane = experiment.submission->host;
  for (const HostId& host : experiment.excluded_hosts) lane += fmt::format("-{}", host.hex);
  for (const HostId& host : unfit_hosts(experiment)) lane += fmt::format("!{}", host.hex);
  lane += fmt::format("|{}+{}{}{}{}{}", spec.max_duration_ms, spec.stop_grace_ms, spec.has_build() ? "b" : "",
                      spec.hard_cpus ? "c" : "", spec.hard_memory ? "m" : "", only_shows(spec) ? "t" : "");
  for (const RoleSpec& role : spec.roles) {
    lane += fmt::format("|{}x{},{},{}", role.count, role.resources.cpus,
                        role.resources.memory_bytes, role.resources.gpus);
    // With whom it is counted is a matter of the role.
    if (role.per_host > 0) lane += fmt::format("/{}{}", role.per_host, to_string(counted_as(role.role)));
  }
  const std::string whose = lane_of_share(model, experiment);
  if (whose.empty() && quota_of(model, experiment) != nullptr) lane += "|u" + experiment.submission->user;
  lane += whose;
  if (spec.elastic) lane += fmt::format("|>{}", spec.elastic->least_of_role);
  return lane;
}

void keep_for_no_one_else(Model& model) {
  if (model.pools.empty()) return;
  for (auto& [id, host] : model.hosts) {
    if (!host.kept_lane.empty() && !model.queue.lanes.contains(host.kept_lane)) host.kept_lane.clear();
  }
}

void enqueue(Model& model, const Experiment& experiment) {
  model.queue.lanes[lane_of(model, experiment)].insert(order_of(experiment));
}

void leave(Model& model, const Experiment& experiment) {
  Queue& queue = model.queue;
  const auto lane = queue.lanes.find(lane_of(model, experiment));
  INVARIANT(lane != queue.lanes.end(), "what waits is in a lane");
  lane->second.erase(order_of(experiment));
  if (lane->second.empty()) queue.lanes.erase(lane);
}

const Queue::Prospect& prospect_of(Model& model, const Experiment& experiment, const std::string& lane) {
  Queue& queue = model.queue;
  if (queue.prospects_version != model.free.version()) {
    queue.prospects.clear();
    queue.prospects_version = model.free.version();
  }
  const auto [entry, fresh] = queue.prospects.try_emplace(lane);
  if (fresh) entry->second = prospect(model, experiment);
  return entry->second;
}

}  // namespace dtrain::daemon
