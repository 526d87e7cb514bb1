// All worker processes of a training, once they have met and agree on what is trained.
#pragma once

#include <memory>

#include "engine/comm/gang.h"
#include "engine/training/run_plan.h"

namespace dtrain::engine {

Result<std::unique_ptr<Gang>> assemble(const RunPlan& plan);

}  // namespace dtrain::engine
