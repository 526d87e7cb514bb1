// Which experiment is meant by a command that looks at what runs.
#pragma once

#include <string>

#include "cli/connection.h"
#include "schema/result.h"

namespace dtrain::cli {

// What was typed; left out, the newest of this project that has processes, else its newest.
Result<std::string> looked_at(Connection& connection, const std::string& typed);

}  // namespace dtrain::cli
