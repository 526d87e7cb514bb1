// All worker processes of a training, once they have met and agree on what is trained.
#pragma once

#include <memory>

#include "engine/comm/gang.h"
#include "engine/training/run_plan.h"

namespace dtrain::engine {

// The master prints what unlike_instructions() has to say.
// `listener`: as meet().
Result<std::unique_ptr<Gang>> assemble(const RunPlan& plan, Listener listener = {});

// What to say of processes that compute with unlike instructions, so that the same training spread another way would
// not come to the same bits; empty: of like ones.
std::string unlike_instructions(const Gang& gang);

}  // namespace dtrain::engine
