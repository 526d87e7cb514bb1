// The python environment that is active in the shell that submits: a venv, or conda's.
#pragma once

#include <google/protobuf/map.h>

#include <array>
#include <string>

#include "schema/spec.h"

namespace dtrain::cli {

// An active venv hides conda's base, as it does in the shell.
inline constexpr std::array<const char*, 2> kPythonVariables{"VIRTUAL_ENV", "CONDA_PREFIX"};

using UserEnv = google::protobuf::Map<std::string, std::string>;

// The directory of the one among these that this Spec takes. Empty: none is active, or it does not go by that.
std::string active_python(const Spec& spec, const UserEnv& variables);

}  // namespace dtrain::cli
