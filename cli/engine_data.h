// The data of `framework: engine`, looked for before anything is sent: a replica would only find out
// after everything was.
#pragma once

#include <filesystem>

#include "schema/result.h"
#include "schema/spec.h"

namespace dtrain::cli {

// InvalidArgument when a path of `data:` within the project is not there, or stays out of the copy:
// which, and what to do; or when one is of a set that `data:` lacks, where it has any. What lies on the hosts
// (/data/...) only they know. Other frameworks: ok.
Status check_engine_data(const Spec& spec, const std::filesystem::path& root);

}  // namespace dtrain::cli
