// `dtrain kill`: what it says. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "schema/dtrain.pb.h"

namespace dtrain::cli {

// What the daemon said about one ID, on a line. `finished_unix_ms` (0: unknown) is when one that
// was over already had ended.
std::string render_killed(const pb::KillReply::Item& item, uint64_t finished_unix_ms,
                          uint64_t now_unix_ms);

}  // namespace dtrain::cli
