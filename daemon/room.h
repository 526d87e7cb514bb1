// An amount of what hosts have: free on one, asked for by a gang, held by a user. It adds up, and may be less than nothing.
#pragma once

#include <algorithm>
#include <cstdint>

#include "schema/cluster_env.h"
#include "schema/spec.h"

namespace dtrain::daemon {

inline constexpr double kCpuSlack = 1e-6;   // fractions of cpus add up inexactly

struct Room {
  double cpus = 0;
  int64_t memory_bytes = 0;
  int gpus = 0;
  int ports = 0;   // one of each replica

  Room& operator+=(const Room& other) {
    cpus += other.cpus;
    memory_bytes += other.memory_bytes;
    gpus += other.gpus;
    ports += other.ports;
    return *this;
  }
  Room& operator-=(const Room& other) { return *this += other * -1; }
  Room operator*(int times) const { return {times * cpus, times * memory_bytes, times * gpus, times * ports}; }
};

// Of each the less, or the more.
inline Room least_of(const Room& a, const Room& b) {
  return {std::min(a.cpus, b.cpus), std::min(a.memory_bytes, b.memory_bytes), std::min(a.gpus, b.gpus), std::min(a.ports, b.ports)};
}
inline Room most_of(const Room& a, const Room& b) {
  return {std::max(a.cpus, b.cpus), std::max(a.memory_bytes, b.memory_bytes), std::max(a.gpus, b.gpus), std::max(a.ports, b.ports)};
}

// What one replica asks for, what it was given, and what a gang asks for.
inline Room room_of(const Resources& each) { return {each.cpus, static_cast<int64_t>(each.memory_bytes), each.gpus, 1}; }
inline Room room_of(const Seat& seat) {
  return {seat.cpus, static_cast<int64_t>(seat.memory_bytes), static_cast<int>(seat.gpus.size()), 1};
}
inline Room room_of(const Spec& gang) {
  Room sum;
  for (const RoleSpec& role : gang.roles) sum += room_of(role.resources) * role.count;
  return sum;
}

}  // namespace dtrain::daemon
