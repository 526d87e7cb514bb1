// Values of parameters that look like lists and are none. Pure.
#pragma once

#include <string>

#include "schema/spec.h"

namespace dtrain::cli {

// `rate: 0.1, 0.2` is one text, and a member for each wants brackets. Names the first such parameter; empty when
// there is none.
std::string list_value_warning(const Spec& spec);

}  // namespace dtrain::cli
