// What an experiment that has its place waits for: hosts that are away, processes that are to end.
// Pure; for people. What one waits for that has no place is told by wait_reason.h.
#pragma once

#include <string>

#include "daemon/model.h"

namespace dtrain::daemon {

// Empty: nothing holds it up.
std::string waits_for(const Experiment& experiment, const Model& model, TimeMs now);

// What becomes of processes that a kill can't reach now: "on h2, which is away, its processes end
// when its runner is back". Empty: it reaches all there are. Of a set (member 0): of all its
// members.
std::string out_of_reach(const Model& model, const ExperimentId& id);

}  // namespace dtrain::daemon
