// A Spec as a batch script of Slurm, in which the same runs without dtrain.
#pragma once

#include "schema/exported.h"
#include "schema/result.h"
#include "schema/spec.h"

namespace dtrain {

// The Spec is what member_spec() gives. InvalidArgument for the engine.
Result<Exported> slurm_script(const Spec& spec);

}  // namespace dtrain
