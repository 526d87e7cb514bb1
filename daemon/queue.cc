#include "daemon/queue.h"

#include <fmt/format.h>

#include <algorithm>

#include "daemon/dependencies.h"
#include "daemon/growth.h"
#include "daemon/placement_elastic.h"
#include "daemon/placement_explain.h"
#include "daemon/placement_fitness.h"

namespace dtrain::daemon {

QueueOrder order_of(const Experiment& experiment) {
  constexpr int kFirst = -1;
  return {experiment.regrows ? kFirst : 100 - experiment.spec().priority, experiment.id};
}

namespace {

Room room_of(const FreeHost& free) {
  return {free.cpus, free.memory_bytes, static_cast<int>(free.gpus.size()), free.port_count()};
}

void add(Room& room, const Seat& seat, int sign) {
  room.cpus += sign * seat.cpus;
  room.memory_bytes += sign * static_cast<int64_t>(seat.memory_bytes);
  room.gpus += sign * static_cast<int>(seat.gpus.size());
  room.ports += sign;
}

}  // namespace

RoomByHost rooms_without(const FreeHosts& free, const std::vector<Seat>& seats) {
  RoomByHost rooms;
  for (const Seat& seat : seats) {
    const auto [place, fresh] = rooms.try_emplace(seat.host);
    if (fresh) place->second = room_of(*free.find(seat.host));
    add(place->second, seat, -1);
  }
  return rooms;
}

namespace {

// The last of its excluded hosts, without the first `readmitted`; and those that are unfit.
Choice choice_with(const Experiment& experiment, size_t readmitted) {
  const auto& excluded = experiment.excluded_hosts;
  Choice choice{experiment.submission->host, unfit_hosts(experiment), nullptr, lane_of(experiment)};
  choice.excluded.insert(choice.excluded.end(), excluded.begin() + static_cast<long>(readmitted),
                         excluded.end());
  return choice;
}

// As few hosts are readmitted as the gang needs to find room at all; all when it finds none.
Queue::Prospect prospect(const Model& model, const Experiment& experiment) {
  const FreeHosts empty = emptied(model.free, obtainable(model.free, choice_with(experiment, 0)));
  const LeastGang least(experiment.spec());
  const auto with = [&](size_t readmitted) -> Queue::Prospect {
    return {readmitted, stretch_needed(experiment.id, least.spec(), empty,
                                       choice_with(experiment, readmitted))};
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

// The connected host with the most free first.
std::vector<const FreeHost*> freest_first(const FreeHosts& free) {
  return {free.open().rbegin(), free.open().rend()};
}

FreeHost whole(const FreeHost& free) {
  FreeHost empty;
  empty.host = free.host;
  empty.open = true;
  empty.cpus = free.host->cpus;
  empty.memory_bytes = static_cast<int64_t>(free.host->memory_bytes);
  for (const Gpu& gpu : free.host->gpus) {
    if (gpu.busy.empty()) empty.gpus.push_back(gpu.index);
  }
  for (const auto& [port, since] : free.host->quarantined_ports) empty.ports_used.insert(port);
  return empty;
}

// When it is over at the latest, by its max-duration. 0: nobody knows.
TimeMs end_of(const Experiment& experiment) {
  const int64_t max_ms = experiment.spec().max_duration_ms;
  if (max_ms == 0 || experiment.run_since_ms == 0) return 0;
  return experiment.run_since_ms + max_ms + experiment.spec().stop_grace_ms;
}

// visit(experiment, seat) for all that is taken of a host.
template <class Visit>
void for_seats(const Model& model, const HostId& host, Visit visit) {
  const auto seated = model.seated.find(host);
  if (seated == model.seated.end()) return;
  for (const ExperimentId& id : seated->second) {
    const Experiment& experiment = model.experiments.at(id);
    for (const Replica& replica : experiment.replicas) {
      if (replica.seat.host == host && holds_seat(experiment, replica)) visit(experiment, replica.seat);
    }
  }
}

// What of a host is free once all has ended whose end is known.
FreeHost in_time(const Model& model, const FreeHost& free) {
  FreeHosts rest;
  rest.put(whole(free));
  for_seats(model, free.host->id, [&](const Experiment& experiment, const Seat& seat) {
    if (end_of(experiment) == 0) rest.take(seat);
  });
  return *rest.find(free.host->id);
}

// Where the gang would go were its hosts as empty as that, on those that are nearest to it; of the first `most` hosts.
template <class Emptied>
std::optional<std::vector<Seat>> future_seats(const Model& model, const Experiment& head, size_t most, Emptied emptied) {
  const std::vector<const FreeHost*> hosts = freest_first(model.free);
  const Choice choice = choice_of(model, head);
  const LeastGang least(head.spec());
  FreeHosts pool;
  size_t taken = 0;
  most = std::min(most, hosts.size());
  for (size_t size = 1; taken < most; size *= 2) {
    for (; taken < std::min(size, most); ++taken) pool.put(emptied(*hosts[taken]));
    if (auto seats = fit(head.id, least.spec(), pool, choice)) return seats;
  }
  const double stretch = stretch_needed(head.id, least.spec(), pool, choice);
  if (stretch <= 1) return std::nullopt;
  return fit(head.id, least.spec(), pool, choice, stretch);
}

Room least_of(const Room& a, const Room& b) {
  return {std::min(a.cpus, b.cpus), std::min(a.memory_bytes, b.memory_bytes), std::min(a.gpus, b.gpus), std::min(a.ports, b.ports)};
}

bool suffices(const Room& room) {
  return room.cpus > -1e-6 && room.memory_bytes >= 0 && room.gpus >= 0 && room.ports >= 0;
}

// When what is missing on the host has been released, by the max-durations of what runs there.
// 0: nobody knows.
TimeMs enough_by(const Model& model, const HostId& host, Room room, TimeMs now) {
  if (suffices(room)) return now;
  std::vector<std::pair<TimeMs, const Seat*>> ends;
  for_seats(model, host, [&](const Experiment& experiment, const Seat& seat) {
    if (const TimeMs end_ms = end_of(experiment); end_ms != 0) ends.emplace_back(end_ms, &seat);
  });
  std::sort(ends.begin(), ends.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [end_ms, seat] : ends) {
    add(room, *seat, 1);
    if (suffices(room)) return end_ms;
  }
  return 0;
}

Reservation reservation_of(const Model& model, const Experiment& head, const std::vector<Seat>& seats, TimeMs now) {
  Reservation reservation{head.id, rooms_without(model.free, seats), now};
  for (const auto& [host, room] : reservation.others_may_use) {
    const TimeMs by_ms = enough_by(model, host, room, now);
    const bool known = by_ms != 0 && reservation.starts_ms != 0;
    reservation.starts_ms = known ? std::max(reservation.starts_ms, by_ms) : 0;
  }
  return reservation;
}

}  // namespace

Choice choice_of(const Model& model, const Experiment& experiment) {
  if (experiment.excluded_hosts.empty()) return choice_with(experiment, 0);
  return choice_with(experiment, prospect(model, experiment).readmitted);
}

std::string lane_of(const Experiment& experiment) {
  const Spec& spec = experiment.spec();
  std::string lane = experiment.submission->host;
  for (const HostId& host : experiment.excluded_hosts) lane += fmt::format("-{}", host.hex);
  for (const HostId& host : unfit_hosts(experiment)) lane += fmt::format("!{}", host.hex);
  lane += fmt::format("|{}{}{}{}", spec.max_duration_ms + spec.stop_grace_ms, spec.has_build() ? "b" : "",
                      spec.hard_cpus ? "c" : "", spec.hard_memory ? "m" : "");
  for (const RoleSpec& role : spec.roles) {
    lane += fmt::format("|{}x{},{},{}", role.count, role.resources.cpus,
                        role.resources.memory_bytes, role.resources.gpus);
  }
  if (spec.elastic) lane += fmt::format("|>{}", spec.elastic->least_of_role);
  return lane;
}

void keep_for_no_one_else(Model& model) {
  if (model.pools.empty()) return;
  for (auto& [id, host] : model.hosts) {
    if (!host.kept_lane.empty() && !model.queue.lanes.contains(host.kept_lane)) host.kept_lane.clear();
  }
}

void enqueue(Queue& queue, const Experiment& experiment) {
  queue.lanes[lane_of(experiment)].insert(order_of(experiment));
}

void leave(Queue& queue, const Experiment& experiment) {
  const auto lane = queue.lanes.find(lane_of(experiment));
  INVARIANT(lane != queue.lanes.end(), "what waits is in a lane");
  lane->second.erase(order_of(experiment));
  if (lane->second.empty()) queue.lanes.erase(lane);
}

std::optional<Reservation> reserve(const Model& model, const Experiment& head, TimeMs now) {
  constexpr size_t kAll = SIZE_MAX, kLooks = 64;  // the second is asked of whatever runs there
  const auto seats = future_seats(model, head, kAll, [](const FreeHost& free) { return whole(free); });
  if (!seats) return std::nullopt;
  Reservation nearest = reservation_of(model, head, *seats, now);
  if (nearest.starts_ms != 0) return nearest;
  // What runs there may never end: rather where the room is that is known to come, or the gang could wait for ever.
  const auto in_known_time = future_seats(model, head, kLooks, [&](const FreeHost& free) { return in_time(model, free); });
  if (!in_known_time) return nearest;
  Reservation certain = reservation_of(model, head, *in_known_time, now);
  return certain.starts_ms != 0 ? certain : nearest;
}

std::optional<PlacingPass::Found> PlacingPass::next() {
  if (!begun_) {
    begun_ = true;
    for (const QueueOrder& order : model_.regrowing) {
      const Experiment& experiment = model_.experiments.at(order.id);
      kept_for_.emplace_back(order, kept_for_growth(model_, experiment, now_));
    }
    for (const auto& [lane, waiting] : model_.queue.lanes) heads_.emplace(*waiting.begin(), lane);
  }
  while (!heads_.empty()) {
    const auto [order, lane] = *heads_.begin();
    heads_.erase(heads_.begin());
    const Experiment& experiment = model_.experiments.at(order.id);
    if (auto placed = try_place(experiment, lane)) {
      const std::set<QueueOrder>& waiting = model_.queue.lanes.at(lane);
      const auto behind = waiting.upper_bound(order);
      if (behind != waiting.end()) heads_.emplace(*behind, lane);
      return Found{order.id, std::move(*placed)};
    }
    refused_.push_back(order.id);
    const bool settles = experiment.spec().elastic && !experiment.regrows && now_ < model_.elastic_from_ms;
    if (settles) keep_for_settling(experiment);
    if (!reservation_) reservation_ = reserve(model_, experiment, now_);
  }
  return std::nullopt;
}

std::optional<Placed> PlacingPass::try_place(const Experiment& experiment,
                                             const std::string& lane) {
  const Spec& spec = experiment.spec();
  size_t readmitted = 0;
  if (!experiment.excluded_hosts.empty()) readmitted = prospect_of(experiment, lane).readmitted;
  Choice choice = choice_with(experiment, readmitted);
  choice.now = now_;
  choice.whole = !experiment.regrows && now_ < model_.elastic_from_ms;
  // How long a build takes nobody knows.
  const bool over_before = reservation_ && reservation_->starts_ms != 0 &&
                           spec.max_duration_ms > 0 && !spec.has_build() &&
                           now_ + spec.max_duration_ms + spec.stop_grace_ms <= reservation_->starts_ms;
  choice.kept_free = kept_from(experiment, over_before);
  Placed placed;
  if (auto seats = fit_largest(experiment.id, spec, model_.free, choice)) {
    placed.seats = std::move(*seats);
  } else {
    const double stretch = prospect_of(experiment, lane).stretch;
    if (stretch <= 1 || (spec.elastic && choice.whole)) return std::nullopt;
    auto shared = fit(experiment.id, LeastGang(spec).spec(), model_.free, choice, stretch);
    if (!shared) return std::nullopt;
    placed.seats = std::move(*shared);
    placed.notice = sharing_notice(spec, placed.seats, model_.free, choice);
  }
  std::erase_if(kept_for_, [&](const auto& one) { return one.first == order_of(experiment); });
  for (const Seat& seat : placed.seats) count_taken(seat, over_before);
  return placed;
}

// It would begin with fewer workers than it asks for, and waits some seconds for more room: nobody takes meanwhile what the
// first of those could have had.
void PlacingPass::keep_for_settling(const Experiment& experiment) {
  model_.deadlines.insert({model_.elastic_from_ms, ExperimentId{}});
  if (settling_) return;
  Choice choice = choice_of(model_, experiment);
  choice.now = now_;
  choice.kept_free = kept_from(experiment, false);
  const auto seats = fit_largest(experiment.id, experiment.spec(), model_.free, choice);
  if (!seats) return;
  settling_ = true;
  kept_for_.emplace_back(order_of(experiment), rooms_without(model_.free, *seats));
}

// Who is over before the reservation begins may use what it keeps.
const RoomByHost* PlacingPass::kept_from(const Experiment& experiment, bool over_before) {
  const bool reserved = reservation_ && !over_before;
  const QueueOrder own = order_of(experiment);
  const bool alone = std::all_of(kept_for_.begin(), kept_for_.end(), [&](const auto& one) { return one.first == own; });
  if (alone) return reserved ? &reservation_->others_may_use : nullptr;
  kept_.clear();
  if (reserved) kept_ = reservation_->others_may_use;
  for (const auto& [order, rooms] : kept_for_) {
    if (own == order) continue;
    for (const auto& [host, room] : rooms) {
      const auto [place, fresh] = kept_.try_emplace(host, room);
      if (!fresh) place->second = least_of(place->second, room);
    }
  }
  return &kept_;
}

void PlacingPass::count_taken(const Seat& seat, bool over_before) {
  const auto count = [&](RoomByHost& rooms) {
    if (const auto kept = rooms.find(seat.host); kept != rooms.end()) add(kept->second, seat, -1);
  };
  if (reservation_ && !over_before) count(reservation_->others_may_use);
  for (auto& [order, rooms] : kept_for_) count(rooms);
}

const Queue::Prospect& PlacingPass::prospect_of(const Experiment& experiment,
                                                const std::string& lane) {
  Queue& queue = model_.queue;
  if (queue.prospects_version != model_.free.version()) {
    queue.prospects.clear();
    queue.prospects_version = model_.free.version();
  }
  const auto [entry, fresh] = queue.prospects.try_emplace(lane);
  if (fresh) entry->second = prospect(model_, experiment);
  return entry->second;
}

namespace {

std::string left_out(const Model& model, const Experiment& experiment, const Choice& choice) {
  std::string text;
  for (const HostId& id : choice.excluded) {
    const auto host = model.hosts.find(id);
    if (host == model.hosts.end() || !host->second.connected || is_unfit(experiment, id)) continue;
    text += fmt::format("{}{}", text.empty() ? "; left out after failed starts: " : ", ",
                        host->second.name);
  }
  return text;
}

// As in a pass: the first ahead of it that has a reservation.
std::optional<ExperimentId> who_keeps_hosts(const Model& model, const Experiment& experiment, TimeMs now) {
  for (const QueueOrder& order : model.regrowing) {
    if (order.id != experiment.id) return order.id;
  }
  std::set<QueueOrder> ahead;
  for (const auto& [lane, waiting] : model.queue.lanes) ahead.insert(*waiting.begin());
  ahead.erase(ahead.lower_bound(order_of(experiment)), ahead.end());
  for (const QueueOrder& head : ahead) {
    if (reserve(model, model.experiments.at(head.id), now)) return head.id;
  }
  return std::nullopt;
}

std::string building_text(const Model& model, const Experiment& experiment) {
  std::string made, sought;
  for (const Replica& replica : experiment.replicas) {
    if (!is_build(replica) || replica.end) continue;
    const auto host = model.hosts.find(replica.seat.host);
    const std::string& name = host == model.hosts.end() ? replica.seat.host.hex : host->second.name;
    const bool runs = replica.progress == Progress::Started;
    std::string& text = runs ? made : sought;
    text += (text.empty() ? "" : ", ") + name;
    if (runs) text += fmt::format(" ({})", to_string(replica.id));
  }
  if (made.empty()) return "its environment is looked for on " + sought;
  return "its environment is being built on " + made +
         (sought.empty() ? "" : "; looked for on " + sought);
}

std::string growing_text(const Experiment& experiment, TimeMs now) {
  const int missing = missing_workers(experiment);
  if (missing == 0) return "";
  std::string text = "has " + size_text(experiment.spec(), missing);
  if (!may_grow(experiment)) return text;
  text += ", and is begun again with more when there is room";
  const TimeMs wait_ms = experiment.grows_from_ms - now;
  return wait_ms <= 0 ? text : text + fmt::format(", not within the next {} s", (wait_ms + 999) / 1000);
}

}  // namespace

std::string wait_reason(const Model& model, const ExperimentId& id, TimeMs now) {
  const auto found = model.experiments.find(id);
  if (found == model.experiments.end()) return "";
  const Experiment& experiment = found->second;
  if (experiment.outcome) return "";
  if (experiment.suspended) {
    return experiment.phase == Phase::None ? suspended_text(id) : "suspended";
  }
  if (experiment.awaits) return awaited_text(model, experiment.submission->spec);
  if (experiment.held) return fmt::format("held by concurrency: {}", experiment.spec().concurrency);
  if (experiment.phase == Phase::Ending) return experiment.wait_reason;
  if (experiment.phase == Phase::Building) return building_text(model, experiment);
  if (experiment.phase != Phase::None) return growing_text(experiment, now);
  if (experiment.not_before_ms != 0) {
    // It is in no lane yet, not even when its time has come and the tick that says so has not.
    if (experiment.not_before_ms <= now) return experiment.wait_reason + "; again now";
    return fmt::format("{}; again in {} s", experiment.wait_reason,
                       (experiment.not_before_ms - now + 999) / 1000);
  }
  constexpr int kCountedMax = 1000;
  const QueueOrder own = order_of(experiment);
  int ahead = 0;
  for (const auto& [lane, waiting] : model.queue.lanes) {
    for (auto it = waiting.begin(); it != waiting.end() && *it < own && ahead < kCountedMax; ++it) ++ahead;
  }
  Choice choice = choice_of(model, experiment);
  choice.now = now;
  choice.whole = !experiment.regrows && now < model.elastic_from_ms;
  const Placement placement = place(id, experiment.spec(), model.free, choice);
  std::string reason;
  if (const auto* waits = std::get_if<Waits>(&placement)) reason = waits->reason;
  if (const auto* never = std::get_if<Never>(&placement)) {
    reason = never->reason + "; " + never->hint;
  }
  if (reason.empty()) {
    const auto ahead_of_it = who_keeps_hosts(model, experiment, now);
    if (!ahead_of_it) return "is placed next";
    return fmt::format("{} is ahead of it and keeps its hosts free", to_string(*ahead_of_it));
  }
  if (const auto asked = model.asked.find(id); asked != model.asked.end()) reason += "; " + asked->second;
  if (experiment.unfit_hosts) {
    // Of those that are known none is left, or it would not wait.
    if (std::holds_alternative<Never>(placement)) reason = "waits for hosts that may yet come back";
    reason = lacks_text(model, experiment) + "; " + reason;
  }
  reason += left_out(model, experiment, choice);
  if (ahead > 0 && std::holds_alternative<Waits>(placement)) {
    reason += fmt::format("; {}{} experiment{} ahead of it", ahead,
                          ahead == kCountedMax ? " or more" : "", ahead == 1 ? "" : "s");
  }
  return reason;
}

}  // namespace dtrain::daemon
