// Parameters whose values the shell would read as more than a word. Pure.
#pragma once

#include <string>

#include "schema/spec.h"

namespace dtrain::cli {

// A value is pasted into the command as text. Names the first that holds ; | $ or the like where
// no quotes stand around it, and what to write instead; empty when there is none.
std::string shell_value_warning(const Spec& spec);

}  // namespace dtrain::cli
