// What torchrun says when one of its processes fails: a traceback of its own and a table without the cause, which stands
// above them.
#pragma once

#include <string>
#include <vector>

namespace dtrain::cli {

// Lines of a replica's output without it, unless there is nothing else.
std::vector<std::string> without_launcher_report(std::vector<std::string> lines);

}  // namespace dtrain::cli
