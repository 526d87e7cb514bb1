// Hosts and gangs in few words, and where plan() puts these.
#pragma once

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/placement.h"

namespace dtrain::daemon {

inline constexpr uint64_t kGiB = uint64_t{1} << 30;

inline Host& add_host(Model& model, const std::string& name, double cpus, uint64_t gib, int gpus) {
  Host& host = model.hosts[{name}];
  host.id.hex = name;
  host.name = name;
  host.address = "at-" + name;
  host.cpus = cpus;
  host.memory_bytes = gib * kGiB;
  for (int gpu = 0; gpu < gpus; ++gpu) host.gpus.push_back({gpu, "gpu", ""});
  host.connected = true;
  model.free.put(free_host(model, host));
  return host;
}

inline RoleSpec role(Role name, int count, double cpus, uint64_t gib, int gpus) {
  RoleSpec made;
  made.role = name;
  made.count = count;
  made.resources = {cpus, gib * kGiB, gpus};
  return made;
}

inline RoleSpec limited(RoleSpec made, int per_host) {
  made.per_host = per_host;
  return made;
}

inline Spec spec_of(std::vector<RoleSpec> roles) {
  Spec spec;
  spec.project = "test";
  spec.roles = std::move(roles);
  return spec;
}

inline Placed placed(const Model& model, const Spec& spec, const std::string& host = "") {
  const Placement placement = plan(model, spec, host);
  const auto* found = std::get_if<Placed>(&placement);
  REQUIRE(found != nullptr);
  return *found;
}

inline std::string waits(const Model& model, const Spec& spec, const std::string& host = "") {
  const Placement placement = plan(model, spec, host);
  const auto* found = std::get_if<Waits>(&placement);
  REQUIRE(found != nullptr);
  return found->reason;
}

inline Never never(const Model& model, const Spec& spec, const std::string& host = "") {
  const Placement placement = plan(model, spec, host);
  const auto* found = std::get_if<Never>(&placement);
  REQUIRE(found != nullptr);
  return *found;
}

inline void take(Model& model, const Placed& taken) {
  for (const Seat& seat : taken.seats) model.free.take(seat);
}

inline std::set<std::string> hosts_of(const Placed& gang) {
  std::set<std::string> hosts;
  for (const Seat& seat : gang.seats) hosts.insert(seat.host.hex);
  return hosts;
}

}  // namespace dtrain::daemon
