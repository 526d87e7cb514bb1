// How many threads each process of a replica should compute with. Pure.
#pragma once

#include "schema/cluster_env.h"
#include "schema/spec.h"

namespace dtrain::runner {

// Its cpus, or its share of them where it has several processes: pytorch.nproc-per-node, or as many as `run` says, as
// in "torchrun --nproc-per-node 4" and "mpirun -np 4". At least 1.
long threads_each(const Spec& spec, const Seat& seat);

}  // namespace dtrain::runner
