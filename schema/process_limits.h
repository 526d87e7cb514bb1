// What the user's limits (ulimit) leave our own processes, above all of descriptors, and what those they start.
#pragma once

#include <cstddef>

#include "schema/result.h"

namespace dtrain {

// Every connection, journal, pipe and pidfd is a descriptor, what is written down grows, and months take processor
// time: takes what the user may have at most of these. A file at its limit is an error then, like a full disk, and
// no signal that kills. Once, early, before other threads exist. A process of ours that is started from here without
// spawn() learns from the environment what the limits were (DTRAIN_NOFILE, DTRAIN_RLIMIT_FSIZE, DTRAIN_RLIMIT_CPU).
void raise_own_limits();

// Gives this process the limits back that it came with: some programs fail above 1024 descriptors (select), others
// close every number up to it. Async-signal-safe, for between fork and exec. Does nothing where they were not raised.
void restore_limits();

// How many this process may have now.
size_t descriptor_limit();

// ResourceExhausted when this process can't have `count` descriptors more. For before anything is begun by
// libraries that abort or throw where they find none (gRPC, Asio).
Status check_descriptors_left(size_t count);

}  // namespace dtrain
