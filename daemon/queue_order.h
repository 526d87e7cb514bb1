// The order in which what waits is tried: priority, then submission. See queue.h for the rules.
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
  // How far a lane's cpus must be shared, by lane; valid for one FreeHosts::version().
  std::map<std::string, double> stretch;
  uint64_t stretch_version = 0;
};

}  // namespace dtrain::daemon
