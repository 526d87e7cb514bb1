// The order in which what waits is tried: priority, then submission. See placing_pass.h for the rules.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "schema/ids.h"

namespace dtrain::daemon {

struct QueueOrder {
  int behind = 0;        // 100 - priority
  ExperimentId id;
  auto operator<=>(const QueueOrder&) const = default;
};

// What waits for a place, in lanes of one shape each: when the first of a lane does not fit, nobody
// behind it in that lane does. So a pass costs the number of lanes, not of experiments.
struct Queue {
  std::map<std::string, std::set<QueueOrder>> lanes;   // by queue.h lane_of(); none is empty
  // What a lane could get of empty hosts; valid for one FreeHosts::version().
  struct Prospect {
    size_t readmitted = 0;   // so many of its excluded hosts, the first ones, count as any other
    double stretch = 0;      // how far its cpus must be shared; 0: that does not help either
  };
  std::map<std::string, Prospect> prospects;   // by lane
  uint64_t prospects_version = 0;
};

}  // namespace dtrain::daemon
