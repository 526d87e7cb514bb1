#include "daemon/placement_free.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "daemon/model.h"
#include "schema/result.h"

namespace dtrain::daemon {

int FreeHost::port_count() const {
  auto used = static_cast<int>(ports_used.size());
  // Of a range that the host had before.
  if (used > 0 && (*ports_used.begin() < host->port_first || *ports_used.rbegin() > host->port_last)) {
    used = static_cast<int>(std::distance(ports_used.lower_bound(host->port_first),
                                          ports_used.upper_bound(host->port_last)));
  }
  return host->port_last - host->port_first + 1 - used;
}

FreeHost empty_host(const Host& host, Strangers strangers) {
  const bool gone = strangers == Strangers::Gone;
  FreeHost empty;
  empty.host = &host;
  empty.open = true;
  empty.cpus = host.cpus;
  empty.memory_bytes = static_cast<int64_t>(host.memory_bytes);
  for (const Gpu& gpu : host.gpus) {
    if (gone || gpu.busy.empty()) empty.gpus.push_back(gpu.index);
  }
  for (const auto& [port, since] : host.quarantined_ports) {
    if (!gone) empty.ports_used.insert(port);
  }
  return empty;
}

bool FreeHosts::TighterFirst::operator()(const FreeHost* a, const FreeHost* b) const {
  if (a->gpus.size() != b->gpus.size()) return a->gpus.size() < b->gpus.size();
  if (a->cpus != b->cpus) return a->cpus < b->cpus;
  return std::tie(a->memory_bytes, a->name, a->host->id) < std::tie(b->memory_bytes, b->name, b->host->id);
}

bool FreeHosts::TighterFirst::operator()(const FreeHost* a, const Size& b) const {
  return a->gpus.size() != b.gpus ? a->gpus.size() < b.gpus : a->cpus < b.cpus;
}

bool FreeHosts::TighterFirst::operator()(const Size& a, const FreeHost* b) const {
  return a.gpus != b->gpus.size() ? a.gpus < b->gpus.size() : a.cpus < b->cpus;
}

void FreeHosts::put(FreeHost free) {
  INVARIANT(free.host != nullptr, "what is free is free on a host");
  const HostId id = free.host->id;
  free.name = free.host->name;
  if (const auto known = hosts_.find(id); known != hosts_.end()) {
    open_.erase(&known->second);
    free.port_next = known->second.port_next;
    known->second = std::move(free);
    link(known->second);
  } else {
    link(hosts_.emplace(id, std::move(free)).first->second);
  }
  ++version_;
}

void FreeHosts::remove(const HostId& id) {
  const auto known = hosts_.find(id);
  if (known == hosts_.end()) return;
  open_.erase(&known->second);
  hosts_.erase(known);
  ++version_;
}

void FreeHosts::take(const Seat& seat) {
  FreeHost& free = unlink(seat.host);
  free.cpus -= seat.cpus;
  free.memory_bytes -= static_cast<int64_t>(seat.memory_bytes);
  for (const int gpu : seat.gpus) {
    const auto found = std::lower_bound(free.gpus.begin(), free.gpus.end(), gpu);
    if (found != free.gpus.end() && *found == gpu) free.gpus.erase(found);
  }
  free.ports_used.insert(seat.port);
  free.port_next = seat.port + 1;
  ++free.seats;
  link(free);
}

void FreeHosts::give(const Seat& seat) {
  FreeHost& free = unlink(seat.host);
  INVARIANT(free.seats > 0, "only a taken seat is given back");
  free.cpus += seat.cpus;
  free.memory_bytes += static_cast<int64_t>(seat.memory_bytes);
  for (const Gpu& gpu : free.host->gpus) {
    const bool ours = std::find(seat.gpus.begin(), seat.gpus.end(), gpu.index) != seat.gpus.end();
    if (!ours || !gpu.busy.empty()) continue;
    free.gpus.insert(std::lower_bound(free.gpus.begin(), free.gpus.end(), gpu.index), gpu.index);
  }
  if (!free.host->quarantined_ports.contains(seat.port)) free.ports_used.erase(seat.port);
  // Fractions add up inexactly; an idle host is a good moment to be exact again.
  if (--free.seats == 0) free.cpus = free.host->cpus;
  link(free);
}

const FreeHost* FreeHosts::find(const HostId& id) const {
  const auto found = hosts_.find(id);
  return found == hosts_.end() ? nullptr : &found->second;
}

FreeHost& FreeHosts::unlink(const HostId& id) {
  const auto found = hosts_.find(id);
  INVARIANT(found != hosts_.end(), "a seat is on a known host");
  open_.erase(&found->second);
  return found->second;
}

void FreeHosts::link(const FreeHost& free) {
  if (free.open) open_.insert(&free);
}

}  // namespace dtrain::daemon
