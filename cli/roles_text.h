// The replicas of a spec in words.
#pragma once

#include <string>

#include "schema/spec.h"

namespace dtrain::cli {

std::string roles_text(const Spec& spec);  // "1 master, 2 workers, 1 ps"

}  // namespace dtrain::cli
