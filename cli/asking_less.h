// How a YAML that asks for more than hosts have is run where they have less. Pure but for what is asked about a Spec.
#pragma once

#include <functional>
#include <string>

#include "schema/result.h"
#include "schema/spec.h"

namespace dtrain::cli {

// The hint of a refusal for want of room, with all the --set that it takes for `spec`, which was parsed so: of what is short
// by `refusal`, and then by `refused` of a Spec that asks for less of that. As it was where no --set would do.
std::string hint_with_less(const Error& refusal, const std::string& yaml, const ParseOptions& parsing, const Spec& spec,
                           const std::function<Status(const Spec&)>& refused);

}  // namespace dtrain::cli
