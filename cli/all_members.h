// A set with all of its members: a reply holds as many of a large one as fit.
#pragma once

#include "cli/connection.h"
#include "schema/dtrain.pb.h"
#include "schema/result.h"

namespace dtrain::cli {

// Completes the members of what show() replied, page by page. Of an experiment that is no set it changes nothing.
Status ask_for_all_members(Connection& connection, pb::ShowReply& reply);

}  // namespace dtrain::cli
