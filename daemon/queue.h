// What waits for a place, and where it may go.
//
// A set has at most `concurrency` members placed at once; the others are CREATED and not in the queue. In which order the queue
// is tried: placing_pass.h.
//
// Hosts where an experiment's starts failed are excluded for it only as long as the others that are
// here could take it. When they could not, those that failed longest ago are tried again: what was
// wrong there may have passed, and nobody is given up for it. Hosts that lack what it names by path are
// another matter: placement_fitness.h.
#pragma once

#include <string>

#include "daemon/model.h"
#include "daemon/placement.h"

namespace dtrain::daemon {

// Experiments of one lane ask for the same and may be placed on the same hosts.
std::string lane_of(const Model& model, const Experiment& experiment);
// Hosts that are kept for a lane in which nobody waits any more are everybody's.
void keep_for_no_one_else(Model& model);
QueueOrder order_of(const Experiment& experiment);
void enqueue(Model& model, const Experiment& experiment);
void leave(Model& model, const Experiment& experiment);
// Where it may go, and where not: unfit hosts, and the excluded ones that still count.
Choice choice_of(const Model& model, const Experiment& experiment);
// The same, where its first `readmitted` excluded hosts don't count.
Choice choice_with(const Model& model, const Experiment& experiment, size_t readmitted);
// What its lane could get of empty hosts; made once for each change of these. Good until the next one.
const Queue::Prospect& prospect_of(Model& model, const Experiment& experiment, const std::string& lane);

}  // namespace dtrain::daemon
