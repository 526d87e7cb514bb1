// What DTRAIN_ISA, which chooses kernels (kernels.h), may say.
#pragma once

#include "schema/result.h"

namespace dtrain::engine {

// InvalidArgument: it is no name of an instruction set, or of one that this CPU doesn't have.
Status check_isa_variable();

}  // namespace dtrain::engine
