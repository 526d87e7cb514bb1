// What --host says: hosts by names, IDs, pools, labels, GPUs and patterns of these, with commas between.
#pragma once

#include <string>
#include <vector>

#include "schema/result.h"

namespace dtrain::cli {

// As `hosts` of a dtrain.yml has them. InvalidArgument names the one that is none.
Result<std::vector<std::string>> host_terms(const std::string& words);

}  // namespace dtrain::cli
