// Which experiment is meant by a command that looks at one.
#pragma once

#include <string>

#include "cli/connection.h"
#include "schema/result.h"

namespace dtrain::cli {

// The experiment or member with that ID; left out, the newest of this project, or of all where it has none, which
// is told on standard error.
Result<pb::ShowReply> look_up(Connection& connection, const std::string& id);

// What was typed; left out, the newest of this project that has processes, else its newest, as above.
Result<std::string> looked_at(Connection& connection, const std::string& typed);

}  // namespace dtrain::cli
