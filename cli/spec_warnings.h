// What of an experiment is allowed, and may not be what was meant. Pure.
#pragma once

#include <string>
#include <vector>

#include "schema/spec.h"

namespace dtrain::cli {

// A sentence or two each.
std::vector<std::string> spec_warnings(const Spec& spec);

}  // namespace dtrain::cli
