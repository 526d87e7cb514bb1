// `dtrain hosts`: what it says. Pure.
#pragma once

#include <string>

#include "cli/view.h"
#include "schema/dtrain.pb.h"

namespace dtrain::cli {

// A table, then one line for each thing that is not as it should be, and one a GPU.
std::string render_hosts(const pb::HostsReply& reply, const View& view);

}  // namespace dtrain::cli
