#include "daemon/claims.h"

#include <algorithm>

#include "daemon/placement_elastic.h"
#include "daemon/queue.h"

namespace dtrain::daemon {

namespace {

// The connected host with the most free first.
std::vector<const FreeHost*> freest_first(const FreeHosts& free) {
  return {free.open().rbegin(), free.open().rend()};
}

FreeHost whole(const FreeHost& free) { return empty_host(*free.host, Strangers::Stay); }

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

bool suffices(const Room& room) {
  return room.cpus >= -kCpuSlack && room.memory_bytes >= 0 && room.gpus >= 0 && room.ports >= 0;
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
    room += room_of(*seat);
    if (suffices(room)) return end_ms;
  }
  return 0;
}

Claim claim_of(const Model& model, const Experiment& head, const std::vector<Seat>& seats, TimeMs now) {
  Claim claim{.whose = order_of(head), .others_may_use = rooms_without(model.free, seats), .starts_ms = now};
  for (const auto& [host, room] : claim.others_may_use) {
    const TimeMs by_ms = enough_by(model, host, room, now);
    const bool known = by_ms != 0 && claim.starts_ms != 0;
    claim.starts_ms = known ? std::max(claim.starts_ms, by_ms) : 0;
  }
  return claim;
}

// It is over before that one could start.
bool may_ignore(const Claim& claim, TimeMs over_ms) { return claim.starts_ms != 0 && over_ms != 0 && over_ms <= claim.starts_ms; }

}  // namespace

RoomByHost rooms_without(const FreeHosts& free, const std::vector<Seat>& seats) {
  RoomByHost rooms;
  for (const Seat& seat : seats) {
    const auto [place, fresh] = rooms.try_emplace(seat.host);
    if (fresh) place->second = free.find(seat.host)->room();
    place->second -= room_of(seat);
  }
  return rooms;
}

std::optional<Claim> reserve(const Model& model, const Experiment& head, TimeMs now) {
  constexpr size_t kAll = SIZE_MAX, kLooks = 64;  // the second is asked of whatever runs there
  const auto seats = future_seats(model, head, kAll, [](const FreeHost& free) { return whole(free); });
  if (!seats) return std::nullopt;
  Claim nearest = claim_of(model, head, *seats, now);
  if (nearest.starts_ms != 0) return nearest;
  // What runs there may never end: rather where the room is that is known to come, or the gang could wait for ever.
  const auto in_known_time = future_seats(model, head, kLooks, [&](const FreeHost& free) { return in_time(model, free); });
  if (!in_known_time) return nearest;
  Claim certain = claim_of(model, head, *in_known_time, now);
  return certain.starts_ms != 0 ? certain : nearest;
}

void Claims::drop(const QueueOrder& whose) {
  std::erase_if(claims_, [&](const Claim& claim) { return claim.whose == whose; });
}

const RoomByHost* Claims::left(const QueueOrder& who, TimeMs over_ms, bool promised) {
  const Claim* only = nullptr;
  size_t count = 0;
  for (const Claim& claim : claims_) {
    if (claim.whose == who || (claim.promised && !promised) || may_ignore(claim, over_ms)) continue;
    if (++count == 1) {
      only = &claim;
      continue;
    }
    if (count == 2) left_ = only->others_may_use;
    for (const auto& [host, room] : claim.others_may_use) {
      const auto [place, fresh] = left_.try_emplace(host, room);
      if (!fresh) place->second = least_of(place->second, room);
    }
  }
  if (count == 0) return nullptr;
  return count == 1 ? &only->others_may_use : &left_;
}

void Claims::take(const std::vector<Seat>& seats, TimeMs over_ms) {
  for (Claim& claim : claims_) {
    if (may_ignore(claim, over_ms)) continue;
    for (const Seat& seat : seats) {
      const auto kept = claim.others_may_use.find(seat.host);
      if (kept != claim.others_may_use.end()) kept->second -= room_of(seat);
    }
  }
}

}  // namespace dtrain::daemon
