#include "runner/command.h"

#include "schema/run_script.h"

namespace dtrain::runner {

std::vector<std::string> shell_command(const std::vector<std::string>& run) { return {"/bin/sh", "-c", run_script(run)}; }

}  // namespace dtrain::runner
