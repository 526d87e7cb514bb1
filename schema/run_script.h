// From the `run` lines of a role to the script that runs them, wherever that is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

// For `/bin/sh -c`: one shell runs the lines in order, the first that fails ends it with its code, and `cd` and variables
// carry over. A last line that is one plain command replaces the shell, so that the program itself is the main process and
// TERM reaches it alone. What a line leaves open, a quote say, is its own mistake.
std::string run_script(const std::vector<std::string>& run);

// True when `exec` in front of the line changes nothing but the process that runs it.
bool is_plain_command(std::string_view line);

}  // namespace dtrain
