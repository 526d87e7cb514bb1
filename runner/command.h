// From the `run` lines of a role to the argv of its replica.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dtrain::runner {

// {"/bin/sh", "-c", script}: one shell runs the lines in order, the first that fails ends it with
// its code, and `cd` and variables carry over. A last line that is one plain command replaces the
// shell, so that the program itself is the replica's main process and TERM reaches it alone.
std::vector<std::string> shell_command(const std::vector<std::string>& run);

// True when `exec` in front of the line changes nothing but the process that runs it.
bool is_plain_command(std::string_view line);

}  // namespace dtrain::runner
