// How many threads each process of a replica should compute with. Pure.
#pragma once

#include "schema/cluster_env.h"
#include "schema/spec.h"

namespace dtrain::runner {

// Its cpus, or its share of them where `run` starts several processes and says how many, as
// "torchrun --nproc-per-node 4" and "mpirun -np 4" do. At least 1.
long threads_each(const Spec& spec, const Seat& seat);

}  // namespace dtrain::runner
