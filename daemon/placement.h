// Where the replicas of a gang go: all of them or none. Pure.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "daemon/model.h"

namespace dtrain::daemon {

// What is free on a host: its inventory minus the seats of everything placed there and not released.
struct FreeHost {
  const Host* host = nullptr;
  double cpus = 0;
  uint64_t memory_bytes = 0;
  std::vector<int> gpus;        // free device indices, ascending
  std::vector<bool> port_used;  // from host->port_first
};

struct Placed { std::vector<Seat> seats; };     // one per replica, Spec order
struct Waits { std::string reason; };           // fits an empty cluster, not this one: "needs 4 GPUs on 2 hosts; free: 3+4"
struct Never { std::string reason; std::string hint; };   // no host can ever give it; names the largest
using Placement = std::variant<Placed, Waits, Never>;

// Places one member. `host` (name or id, may be empty) and `excluded` narrow the choice.
// Addresses: 127.0.0.1 when the whole gang lands on one host, the hosts' own otherwise.
Placement place(const ExperimentId& id, const Spec& spec, const std::vector<FreeHost>& hosts,
                const std::string& host, const std::vector<HostId>& excluded);

}  // namespace dtrain::daemon
