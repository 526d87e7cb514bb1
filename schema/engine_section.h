// The section `engine:`, with a value wherever a parameter may stand, as an EngineSpec.
#pragma once

#include "schema/engine_check.h"
#include "schema/engine_spec.h"
#include "schema/problems.h"
#include "schema/yaml_tree.h"

namespace dtrain {

inline constexpr const char* kEnginePath = "train.engine";

// The section was checked against the table, and nothing of it was refused. Reports what its values
// are at odds about, with each other and with the roles; then the spec means nothing.
EngineSpec read_engine_section(const YamlNode& section, const EngineRoles& roles,
                               Problems& problems);

}  // namespace dtrain
