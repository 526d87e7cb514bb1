// `dtrain kill`: what it says. Pure.
#pragma once

#include <string>

#include "schema/dtrain.pb.h"

namespace dtrain::cli {

// One line an ID.
std::string render_kill(const pb::KillReply& reply);

}  // namespace dtrain::cli
