// What a person should know about what was just accepted, a line each: what this version leaves out,
// and what is there that nobody asked for. Pure.
#pragma once

#include <string>
#include <vector>

#include "daemon/model.h"

namespace dtrain::daemon {

std::vector<std::string> notices_of(const Spec& spec, const Model& model);

}  // namespace dtrain::daemon
