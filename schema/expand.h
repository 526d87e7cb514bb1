// From a Spec with a grid to the members of its set; pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "schema/result.h"
#include "schema/spec.h"

namespace dtrain {

// The parameters of member `member` (1-based; 0 or 1 for an experiment that is no set): the cartesian
// product with names in sorted order, the last varying fastest. name -> value text.
std::map<std::string, std::string> member_parameters(const Spec& spec, uint32_t member);

// The Spec of one member: each parameter has its one value and every run line has its {{ name }}
// replaced ({{name}} too). Never fails on a Spec that parse_spec accepted.
Spec member_spec(const Spec& spec, uint32_t member);

// "learning-rate" -> "LEARNING_RATE": the parameter's name in a replica's environment.
std::string parameter_env_name(std::string_view name);

}  // namespace dtrain
