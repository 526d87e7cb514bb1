#include "daemon/placement_reach.h"

namespace dtrain::daemon {

namespace {

// If nothing else were there.
bool would_take(const Spec& spec, const FreeHost& free, const Choice& choice) {
  const Room gang = room_of(spec);
  const Host& host = *free.host;
  return free.open && host.cpus >= gang.cpus && static_cast<int64_t>(host.memory_bytes) >= gang.memory_bytes && may_take(spec, host, choice);
}

}  // namespace

std::vector<FreeHosts> nearest_first(const Spec& spec, const FreeHosts& hosts, const Choice& choice) {
  FreeHosts own, reached, all;
  bool any_own = false, any_reached = false;
  for (const auto& [id, free] : hosts.all()) {
    const Host& host = *free.host;
    const bool is_there = would_take(spec, free, choice);
    all.put(free);
    if (host.same_machine) own.put(free);
    if (host.same_machine || !host.address.empty()) reached.put(free);
    any_own = any_own || (is_there && host.same_machine);
    any_reached = any_reached || (is_there && !host.address.empty());
  }
  std::vector<FreeHosts> nearest;
  if (any_own) nearest.push_back(std::move(own));
  if (any_own || any_reached) nearest.push_back(std::move(reached));
  if (nearest.empty()) nearest.push_back(std::move(all));
  return nearest;
}

}  // namespace dtrain::daemon
