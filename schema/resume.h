// What an experiment goes on from, as its Spec names it.
#pragma once

#include <string>

#include "schema/spec.h"

namespace dtrain {

// By which a program finds it; the engine has a key.
inline constexpr const char* kResumeVariable = "RESUME_DIR";

// By which a program finds the results of what it comes after.
inline constexpr const char* kAfterVariable = "AFTER_DIR";
// Which of these a member has to find results by, the first of them that it has; null: none, or it is the engine.
const char* resume_variable(const Spec& member);

// Of a member: an absolute path, empty for none.
std::string resumed_path(const Spec& member);

}  // namespace dtrain
