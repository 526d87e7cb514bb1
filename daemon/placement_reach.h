// Where what only shows something to people may go. The daemon's own machine, where outputs lie, comes first; then hosts
// with an address; one without only where none of these is there that could ever take it, for nobody reaches it. Pure.
#pragma once

#include <vector>

#include "daemon/placement.h"

namespace dtrain::daemon {

// Parts of `hosts`, of which a later one holds all of the one before: the first that has room is taken. Never empty.
std::vector<FreeHosts> nearest_first(const Spec& spec, const FreeHosts& hosts, const Choice& choice);

}  // namespace dtrain::daemon
