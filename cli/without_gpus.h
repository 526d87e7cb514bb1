// How a YAML that asks for GPUs is run where there are none.
#pragma once

#include <string>

#include "schema/spec.h"

namespace dtrain::cli {

// ", e.g. --set train.resources.gpus=0", with all that it takes for `spec`, which was parsed so; empty: no --set would do.
std::string without_gpus(const std::string& yaml, const ParseOptions& parsing, const Spec& spec);

}  // namespace dtrain::cli
