// `dtrain kill`: what it says. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "schema/dtrain.pb.h"

namespace dtrain::cli {

// What the daemon said about one ID, on a line. `experiment` is as it is after that; empty:
// unknown.
std::string render_killed(const pb::KillReply::Item& item, const pb::ExperimentInfo& experiment,
                          uint64_t now_unix_ms);

}  // namespace dtrain::cli
