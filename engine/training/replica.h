// A replica of an experiment, from its environment to its end: a worker that trains, or a parameter
// server.
#pragma once

#include "engine/server/tunnels.h"
#include "schema/result.h"

namespace dtrain::engine {

// Reads DTRAIN_ENGINE, TF_CONFIG, EXPERIMENT_ID, DTRAIN_ATTEMPT, OUTPUT_DIR. Prints to stdout. A
// parameter server returns at SIGTERM. `tunnels` are what `data-path: grpc` goes through.
Status run_replica(const Tunnels& tunnels);

}  // namespace dtrain::engine
