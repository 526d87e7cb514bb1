// What is free on each host, kept up to date seat by seat, in the order best fit wants it.
//
// Owner: Model. Never looks at experiments: lifecycle tells it when a seat is taken and given back,
// and free_host() in placement.h can say it anew from the facts.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "daemon/room.h"
#include "schema/cluster_env.h"
#include "schema/ids.h"

namespace dtrain::daemon {

struct Host;

// A host's inventory minus the seats of everything placed there and not released. cpus and memory may
// be negative: a gang that shares cpus, or an inventory that shrank.
struct FreeHost {
  const Host* host = nullptr;
  std::string name;             // of the host when it was put: what is kept in order by it may not change
  bool open = false;            // connected, without strays, not drained: something may be placed here
  bool drained = false;
  uint32_t unreadable = 0;      // has something of that number, which is in Model::unreadable; 0: nothing like that
  double cpus = 0;
  int64_t memory_bytes = 0;
  std::vector<int> gpus;        // free device indices, ascending
  std::set<int> ports_used;     // quarantined ones too
  int port_next = 0;            // ports are given out round robin, so that an address is not soon reused
  int seats = 0;                // 0: idle
  int port_count() const;       // free ones
  Room room() const { return {cpus, memory_bytes, static_cast<int>(gpus.size()), port_count()}; }
};

// With nothing placed on it; and the GPUs and ports that strangers use now?
enum class Strangers { Stay, Gone };
FreeHost empty_host(const Host& host, Strangers strangers);

class FreeHosts {
 public:
  FreeHosts() = default;
  FreeHosts(FreeHosts&&) = default;
  FreeHosts& operator=(FreeHosts&&) = default;

  void put(FreeHost free);      // adds the host or replaces what is known of it
  void remove(const HostId& id);
  void take(const Seat& seat);
  void give(const Seat& seat);
  void set_port_next(const HostId& id, int port) { hosts_.at(id).port_next = port; }

  const FreeHost* find(const HostId& id) const;
  const std::map<HostId, FreeHost>& all() const { return hosts_; }

  // Open hosts by free GPUs, then cpus, then memory, then name: a tight fit comes first.
  struct Size {
    size_t gpus = 0;
    double cpus = 0;
  };
  struct TighterFirst {
    using is_transparent = void;
    bool operator()(const FreeHost* a, const FreeHost* b) const;
    bool operator()(const FreeHost* a, const Size& b) const;
    bool operator()(const Size& a, const FreeHost* b) const;
  };
  using BySize = std::set<const FreeHost*, TighterFirst>;
  const BySize& open() const { return open_; }

  // Raised whenever a host comes, goes or changes its inventory; seats don't raise it.
  uint64_t version() const { return version_; }

 private:
  FreeHost& unlink(const HostId& id);
  void link(const FreeHost& free);

  std::map<HostId, FreeHost> hosts_;
  BySize open_;
  uint64_t version_ = 0;
};

}  // namespace dtrain::daemon
