#include "daemon/placement_seats.h"

#include <algorithm>
#include <map>
#include <set>

namespace dtrain::daemon {

namespace {

// Hands out concrete GPUs and ports of one host.
struct Dispenser {
  explicit Dispenser(const FreeHost& free)
      : host(free.host), gpus(free.gpus), used(free.ports_used), port(free.port_next) {}

  int next_port() {
    for (int tried = host->port_first; tried <= host->port_last; ++tried) {
      if (port < host->port_first || port > host->port_last) port = host->port_first;
      if (used.insert(port).second) return port++;
      ++port;
    }
    INVARIANT(false, "the host was counted to have a free port");
    return 0;
  }

  // Of one NUMA node, the one with the fewest that are enough; else of as few as can be. The first of each.
  std::vector<int> next_gpus(int count) {
    const auto is_near = [this](const Gpu& one) { return one.numa_node == host->gpus.front().numa_node; };
    const auto enough = gpus.begin() + count;
    if (std::all_of(host->gpus.begin(), host->gpus.end(), is_near)) {
      std::vector<int> first(gpus.begin(), enough);
      gpus.erase(gpus.begin(), enough);
      return first;
    }
    std::vector<int> taken;
    std::map<int, std::vector<int>> free;   // by node
    for (const int index : gpus) free[node_of(index)].push_back(index);
    while (static_cast<int>(taken.size()) < count) {
      const size_t wanted = static_cast<size_t>(count) - taken.size();
      const auto is_better = [wanted](const auto& a, const auto& b) {
        const size_t x = a.second.size(), y = b.second.size();
        return x >= wanted && y >= wanted ? x < y : x > y;
      };
      const auto from = std::min_element(free.begin(), free.end(), is_better);
      INVARIANT(from != free.end(), "the host was counted to have free GPUs");
      const size_t some = std::min(wanted, from->second.size());
      taken.insert(taken.end(), from->second.begin(), from->second.begin() + static_cast<std::ptrdiff_t>(some));
      free.erase(from);
    }
    std::sort(taken.begin(), taken.end());
    std::erase_if(gpus, [&](int index) { return std::binary_search(taken.begin(), taken.end(), index); });
    return taken;
  }
  int node_of(int index) const {
    const auto gpu = std::find_if(host->gpus.begin(), host->gpus.end(), [index](const Gpu& one) { return one.index == index; });
    return gpu == host->gpus.end() ? -1 : gpu->numa_node;
  }

  const Host* host;
  std::vector<int> gpus;
  std::set<int> used;
  int port;
  int next_local_rank = 0;
};

}  // namespace

std::vector<Seat> seats_of(const ExperimentId& id, const Spec& spec,
                           const std::vector<Share>& shares) {
  std::vector<Dispenser> hosts;
  for (const Share& share : shares) hosts.emplace_back(*share.host);
  std::vector<Seat> seats;
  const std::vector<ReplicaId> replicas = replica_ids(id, spec);
  for (size_t role = 0; role < spec.roles.size(); ++role) {
    const Resources& each = spec.roles[role].resources;
    for (size_t h = 0; h < shares.size(); ++h) {
      for (int i = 0; i < shares[h].count[role]; ++i) {
        Seat seat;
        seat.rank = static_cast<int>(seats.size());
        seat.replica = replicas[seats.size()];
        seat.host = hosts[h].host->id;
        seat.host_name = hosts[h].host->name;
        seat.address = shares.size() == 1 ? "127.0.0.1" : hosts[h].host->address;
        seat.port = hosts[h].next_port();
        seat.local_rank = hosts[h].next_local_rank++;
        seat.cpus = each.cpus;
        seat.memory_bytes = each.memory_bytes;
        if (each.gpus > 0) seat.gpus = hosts[h].next_gpus(each.gpus);
        seats.push_back(std::move(seat));
      }
    }
  }
  INVARIANT(seats.size() == replicas.size(), "a gang is placed whole");
  return seats;
}

}  // namespace dtrain::daemon
