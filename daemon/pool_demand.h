// How many hosts what waits needs of which pool, beyond what was asked for already. Pure.
//
// A gang that does not fit what is there asks for as many hosts of a pool as it fits on alone: an allocation of its
// own, which comes whole or not at all. What waits behind it uses what is left of that before it asks for more.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "daemon/model.h"

namespace dtrain::daemon {

// Asked for, and not here yet.
struct Coming {
  uint32_t allocation = 0;
  std::string pool;
  int hosts = 0;
};

struct Ask {
  std::string pool;
  int hosts = 0;
  ExperimentId for_whom;
  bool operator==(const Ask&) const = default;
};

struct Demand {
  std::vector<Ask> asks;
  std::set<uint32_t> awaited;         // of what is coming: somebody who waits fits there
  // Who waits because of a pool that would do, were not so many of its hosts taken, or were it not closed.
  std::map<ExperimentId, std::string> exhausted, refused;
};

// `taken`: of each pool, the hosts of all its allocations, here or coming. `closed`: pools that nothing is asked of now.
Demand demand_on_pools(const Model& model, const std::vector<Coming>& coming, const std::map<std::string, int>& taken,
                       const std::set<std::string>& closed, TimeMs now);

}  // namespace dtrain::daemon
