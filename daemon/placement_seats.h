// The seats of a gang that is divided among hosts: concrete GPUs, ports and ranks. Pure.
#pragma once

#include <vector>

#include "daemon/placement_shares.h"

namespace dtrain::daemon {

// One per replica, Spec order. Ranks run through the gang in that order; a role's replicas fill the hosts one after the other.
std::vector<Seat> seats_of(const ExperimentId& id, const Spec& spec, const std::vector<Share>& shares);

}  // namespace dtrain::daemon
