// A replica of an experiment, from its environment to its end: a worker that trains, or a parameter
// server.
#pragma once

#include "engine/server/tunnels.h"
#include "engine/training/gpus.h"
#include "schema/result.h"

namespace dtrain::engine {

// Reads DTRAIN_ENGINE, TF_CONFIG, EXPERIMENT_ID, DTRAIN_SUBMISSION, DTRAIN_ATTEMPT, OUTPUT_DIR. Prints to stdout. A
// parameter server returns at SIGTERM. `tunnels` are what `data-path: grpc` goes through. GPUs are used
// where CUDA_VISIBLE_DEVICES names some; `gpus` may be null, of a program that can't.
Status run_replica(const Tunnels& tunnels, const Gpus* gpus);

}  // namespace dtrain::engine
