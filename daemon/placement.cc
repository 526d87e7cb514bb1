#include "daemon/placement.h"

#include <algorithm>
#include <set>

#include "daemon/placement_elastic.h"
#include "daemon/placement_explain.h"
#include "daemon/placement_reach.h"
#include "daemon/placement_seats.h"
#include "daemon/quota.h"
#include "schema/tensorboard.h"

namespace dtrain::daemon {

namespace {

constexpr double kStretchStep = 1.25;   // cpus are shared as little as possible, in such steps
constexpr double kStretchMax = 1024;

bool lasts_long_enough(const Spec& spec, const Host& host, TimeMs now) {
  if (host.lasts_ms == 0 || (now == 0 && !host.potential)) return true;
  // One that is yet to come has lost some of it by the time it is here.
  const int64_t left_ms = host.potential ? host.lasts_ms - leaves_early_ms(host) : host.ends_ms - now;
  if (spec.max_duration_ms == 0) return left_ms >= host.lasts_ms / 2;
  return spec.max_duration_ms + spec.stop_grace_ms <= left_ms - leaves_early_ms(host);
}

}  // namespace

bool may_take(const Spec& spec, const Host& host, const Choice& choice) {
  if (!choice.host.empty() && !is_wanted(host, choice.host)) return false;
  if (!keeps_limits(spec, host)) return false;
  if (!host.kept_lane.empty() && host.kept_lane != choice.lane) return false;
  if (!lasts_long_enough(spec, host, choice.now)) return false;
  const auto excluded = [&](const HostId& id) {
    return std::find(choice.excluded.begin(), choice.excluded.end(), id) != choice.excluded.end();
  };
  return !excluded(host.id) && (host.pool.empty() || !excluded(id_of_pool(host.pool)));
}

std::optional<std::vector<Seat>> fit(const ExperimentId& id, const Spec& spec,
                                     const FreeHosts& hosts, const Choice& choice,
                                     double stretch) {
  if (choice.quota_left && !is_within(spec, *choice.quota_left)) return std::nullopt;
  const auto fit_on = [&](const FreeHosts& some) -> std::optional<std::vector<Seat>> {
    const auto shares = shares_of(spec, some, choice, stretch);
    if (!shares) return std::nullopt;
    return seats_of(id, spec, *shares);
  };
  if (!only_shows(spec)) return fit_on(hosts);
  for (const FreeHosts& nearer : nearest_first(spec, hosts, choice)) {
    if (auto seats = fit_on(nearer)) return seats;
  }
  return std::nullopt;
}

double stretch_needed(const ExperimentId& id, const Spec& spec, const FreeHosts& empty,
                      const Choice& choice) {
  if (fit(id, spec, empty, choice)) return 1;
  double most_cpus = 0;
  for (const FreeHost* free : empty.open()) {
    if (may_take(spec, *free->host, choice) && free->host->pool.empty()) most_cpus = std::max(most_cpus, free->host->cpus);
  }
  for (const RoleSpec& role : spec.roles) {
    if (role.resources.cpus > most_cpus + kCpuSlack) return 0;
  }
  if (!fit(id, spec, empty, choice, kStretchMax)) return 0;   // not for want of cpus
  for (double stretch = kStretchStep; stretch < kStretchMax; stretch *= kStretchStep) {
    if (fit(id, spec, empty, choice, stretch)) return stretch;
  }
  return kStretchMax;
}

Which obtainable(const FreeHosts& hosts, const Choice& choice) {
  if (choice.host.empty()) return Which::Obtainable;
  bool is_brought = false, is_like_others = false;
  for (const auto& [id, free] : hosts.all()) {
    const Host& host = *free.host;
    if (host.pool.empty() || !is_wanted(host, choice.host)) continue;
    (host.potential ? is_like_others : is_brought) = true;
  }
  return is_brought && !is_like_others ? Which::Connected : Which::Obtainable;
}

FreeHosts emptied(const FreeHosts& hosts, Which which) {
  FreeHosts empty;
  const bool all = which == Which::Known;
  std::set<std::string> pools;   // of which all that they may bring is here
  for (const auto& [id, free] : hosts.all()) {
    if (free.host->potential) pools.insert(free.host->pool);
  }
  for (const auto& [id, free] : hosts.all()) {
    const Host& host = *free.host;
    const bool pooled = !host.potential && pools.contains(host.pool);
    if (which == Which::Connected ? !free.open : pooled || (!all && !free.open && !host.potential)) continue;
    empty.put(empty_host(host, all ? Strangers::Gone : Strangers::Stay));
  }
  return empty;
}

FreeHost free_host(const Model& model, const Host& host) {
  FreeHost free = empty_host(host, Strangers::Stay);
  free.drained = model.drained.contains(host.id);
  free.open = host.connected && host.strays.empty() && !host.leaving && !free.drained;
  for (const HeldReplicaFact& held : host.strays) {
    if (model.unreadable.contains(held.replica.experiment.number)) free.unreadable = held.replica.experiment.number;
  }
  free.port_next = host.port_first;
  std::sort(free.gpus.begin(), free.gpus.end());
  const auto seated = model.seated.find(host.id);
  if (seated == model.seated.end()) return free;
  for (const ExperimentId& id : seated->second) {
    const Experiment& experiment = model.experiments.at(id);
    for (const Replica& replica : experiment.replicas) {
      const Seat& seat = replica.seat;
      if (seat.host != host.id || !holds_seat(experiment, replica)) continue;
      free.cpus -= seat.cpus;
      free.memory_bytes -= static_cast<int64_t>(seat.memory_bytes);
      free.ports_used.insert(seat.port);
      std::erase_if(free.gpus, [&seat](int gpu) { return std::find(seat.gpus.begin(), seat.gpus.end(), gpu) != seat.gpus.end(); });
      ++free.seats;
    }
  }
  return free;
}

bool keeps_limits(const Spec& spec, const Host& host) {
  return (!spec.hard_cpus || host.caps_cpus) && (!spec.hard_memory || host.caps_memory);
}

Placement place(const ExperimentId& id, const Spec& spec, const FreeHosts& hosts,
                const Choice& choice) {
  if (auto seats = fit_largest(id, spec, hosts, choice)) {
    std::string notice = workers_text(spec, missing_workers(spec, *seats));
    return Placed{std::move(*seats), std::move(notice)};
  }
  const LeastGang least(spec);
  const double stretch = stretch_needed(id, least.spec(), emptied(hosts, obtainable(hosts, choice)), choice);
  if (choice.whole && spec.elastic && stretch > 0 && fit(id, least.spec(), hosts, choice, stretch)) {
    return Waits{"waits some seconds for more room, to begin with more of its workers"};
  }
  if (stretch > 1) {
    if (auto seats = fit(id, least.spec(), hosts, choice, stretch)) {
      const std::string size = workers_text(spec, missing_workers(spec, *seats));
      std::string notice = sharing_notice(spec, *seats, hosts, choice);
      return Placed{std::move(*seats), size.empty() ? notice : size + "; " + notice};
    }
  }
  return explain(id, least.spec(), hosts, choice, stretch);
}

Placement plan(const Model& model, const Spec& spec, const std::string& host) {
  const ExperimentId id{1, spec.is_set() ? 1u : 0u};
  const Choice choice{host, {}, nullptr};
  const std::vector<Spec> shapes = shapes_of(spec);
  for (const Spec& shape : shapes) {
    if (shape.roles.empty()) continue;
    auto placement = place(id, shape, model.free, choice);
    if (std::holds_alternative<Never>(placement)) return placement;
  }
  return place(id, shapes.empty() ? spec : shapes[shape_of(spec, id.member)], model.free, choice);
}

}  // namespace dtrain::daemon
