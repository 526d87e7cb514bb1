// Whether a gang finds room, told without the rules by which daemon/placement.cc looks for it.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "daemon/placement.h"

namespace dtrain::sim {

// Whether all of a gang finds room: every way to spread it is tried, so this never errs.
class RoomSearch {
 public:
  RoomSearch(const Spec& spec, std::vector<daemon::Room> rooms) : spec_(spec), rooms_(std::move(rooms)) {}
  bool run() {
    taken_.assign(spec_.roles.size(), std::vector<int>(rooms_.size(), 0));
    return from(0, 0, spec_.roles.front().count);
  }

 private:
  bool from(size_t role, size_t host, int left) {
    if (left == 0) {
      if (++role == spec_.roles.size()) return true;
      return from(role, 0, spec_.roles[role].count);
    }
    if (host == rooms_.size()) return false;
    const Resources& each = spec_.roles[role].resources;
    const daemon::Room before = rooms_[host];
    daemon::Room& room = rooms_[host];
    for (int count = 0; count <= left; ++count) {
      taken_[role][host] = count;
      if (is_over_limit(spec_.roles[role], host)) break;
      if (from(role, host + 1, left - count)) return true;
      room -= daemon::room_of(each);
      if (room.cpus < -1e-6 || room.memory_bytes < 0 || room.gpus < 0 || room.ports < 0) break;
    }
    taken_[role][host] = 0;
    rooms_[host] = before;
    return false;
  }

  // Also of the workers that are there by the master's share, which was tried before theirs.
  bool is_over_limit(const RoleSpec& limited, size_t host) const {
    int sum = 0;
    for (size_t role = 0; role < spec_.roles.size(); ++role) {
      if (counted_as(spec_.roles[role].role) == counted_as(limited.role)) sum += taken_[role][host];
    }
    return limited.per_host > 0 && sum > limited.per_host;
  }

  const Spec& spec_;
  std::vector<daemon::Room> rooms_;
  std::vector<std::vector<int>> taken_;   // by role and host
};

inline bool may_use(const daemon::Choice& choice, const daemon::Host& host) {
  const auto& excluded = choice.excluded;
  return (choice.host.empty() || choice.host == host.name) &&
         std::find(excluded.begin(), excluded.end(), host.id) == excluded.end();
}

inline daemon::Room whole(const daemon::Host& host) {
  daemon::Room room{host.cpus, static_cast<int64_t>(host.memory_bytes), 0,
            host.port_last - host.port_first + 1 - static_cast<int>(host.quarantined_ports.size())};
  for (const daemon::Gpu& gpu : host.gpus) room.gpus += gpu.busy.empty() ? 1 : 0;
  return room;
}

}  // namespace dtrain::sim
