// What a set's `search` says of its members: that those which are not among the best end early, and all of them where
// too many fail. Inside the pure core only.
#pragma once

#include "daemon/lifecycle_turn.h"

namespace dtrain::daemon {

void on_rung_reached(Turn& turn, const RungReached& event);
// Of sets of which a member has just ended, and which allow no more of them to fail.
void end_failing_sets(Turn& turn);

}  // namespace dtrain::daemon
