// Sets whose members are the same training. Pure.
#pragma once

#include <string>

#include "schema/spec.h"

namespace dtrain::cli {

// The engine is told by its section alone, and the same section trains to the same bits. Names the
// first parameter that makes members with the same; empty when there is none.
std::string same_members_warning(const Spec& spec);

}  // namespace dtrain::cli
