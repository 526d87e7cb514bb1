// What waits for the ends of others: `after` and `after-end` of a dtrain.yml.
//
// Until all of them are over it is CREATED and in no lane. Where one of `after` ends otherwise than FINISHED it fails, in
// the same step: so what was stored of both agrees, and whoever still waits after a daemon's end waits for what is live.
// Those named have lower numbers, so that nothing can wait for itself.
#pragma once

#include <string>
#include <vector>

#include "daemon/lifecycle_turn.h"

namespace dtrain::daemon {

// Of a set (member 0) any of it, as it is decided: it may not be committed yet. What the model does not have is over.
bool lives(const Model& model, const ExperimentId& id);

// Whom one with that Spec has to wait for still, each once.
std::vector<ExperimentId> awaited_by(const Model& model, const Spec& spec);
// "waits for 4 (RUNNING) to finish", for people; empty: for nobody.
std::string awaited_text(const Model& model, const Spec& spec);

// From now on it is told when they are over; nothing where all are.
void begin_to_wait(Model& model, const Submission& submission);
// Who was to come after one of `turn.ended`, and can't; true: these are touched, and their ends are for the next call.
bool fail_with_ended(Turn& turn);
// Likewise, once one of `Model::unreadable` is given up, who waited for it.
void end_awaited_unreadable(Turn& turn, uint32_t number);
// Who waits for nobody any more, once nothing is touched and no more fail.
void let_begin(Turn& turn);

}  // namespace dtrain::daemon
