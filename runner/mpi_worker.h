// `dtrain mpi-worker`: what a worker of framework: mpi runs. It starts, among its own processes and with its own
// environment, what mpirun has the launcher's agent ask for, and ends with the experiment.
#pragma once

#include "schema/result.h"

namespace dtrain::runner {

// Listens at $DTRAIN_PORT. Returns after TERM or INT, or when it can't begin.
Status run_mpi_worker();

}  // namespace dtrain::runner
