// Why a gang is not placed, in words: what it needs, what there is, and what to do.
#pragma once

#include <string>
#include <vector>

#include "daemon/placement.h"

namespace dtrain::daemon {

// Of a gang that fit() refuses. `stretch` is its stretch_needed() on the connected hosts when empty.
Placement explain(const ExperimentId& id, const Spec& spec, const FreeHosts& hosts,
                  const Choice& choice, double stretch);

// "4 replicas ask for 4 cpus and share the 2 of n1"; and which addresses would spare them that.
std::string sharing_notice(const Spec& spec, const std::vector<Seat>& seats, const FreeHosts& hosts,
                           const Choice& choice);

}  // namespace dtrain::daemon
