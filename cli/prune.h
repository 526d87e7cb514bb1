// What `dtrain prune` says; prune.cc is the command.
#pragma once

#include <string>

#include "schema/dtrain.pb.h"

namespace dtrain::cli {

// What goes, or with `done` what is gone, of what was asked for.
std::string render_pruned(const pb::PruneReply& reply, const pb::PruneRequest& asked, bool done);

// "3-5, 9": numbers in order.
std::string number_ranges(const pb::PruneReply& reply);

}  // namespace dtrain::cli
