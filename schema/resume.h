// What an experiment goes on from, as its Spec names it.
#pragma once

#include <string>

#include "schema/spec.h"

namespace dtrain {

// By which a program finds it; the engine has a key.
inline constexpr const char* kResumeVariable = "RESUME_DIR";

// Of a member: an absolute path, empty for none.
std::string resumed_path(const Spec& member);

}  // namespace dtrain
