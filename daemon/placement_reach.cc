#include "daemon/placement_reach.h"

namespace dtrain::daemon {

namespace {

// If nothing else were there.
bool would_take(const Spec& spec, const FreeHost& free, const Choice& choice) {
  double cpus = 0;
  uint64_t memory_bytes = 0;
  for (const RoleSpec& role : spec.roles) {
    cpus += role.count * role.resources.cpus;
    memory_bytes += static_cast<uint64_t>(role.count) * role.resources.memory_bytes;
  }
  const Host& host = *free.host;
  return free.open && host.cpus >= cpus && host.memory_bytes >= memory_bytes && may_take(spec, host, choice);
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
