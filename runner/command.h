// From the `run` lines of a role to the argv of its replica.
#pragma once

#include <string>
#include <vector>

namespace dtrain::runner {

// {"/bin/sh", "-c", script}: run_script.h says what it does.
std::vector<std::string> shell_command(const std::vector<std::string>& run);

}  // namespace dtrain::runner
