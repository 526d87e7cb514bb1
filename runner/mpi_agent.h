// `dtrain mpi-agent`: what mpirun calls in place of ssh, to start something in a worker.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "schema/result.h"

namespace dtrain::runner {

// `words`: what ssh would have been given, a worker's name as in the hostfile and then the command; what begins with a
// dash before that is ssh's own. `workers`: who they are, a file of lines "NAME ADDRESS PORT". The exit code of the command.
Result<int> run_mpi_agent(const std::filesystem::path& workers, std::vector<std::string> words);

}  // namespace dtrain::runner
