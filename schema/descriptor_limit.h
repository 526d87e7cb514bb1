// How many descriptors our own processes may have open, and how many those they start.
#pragma once

#include <cstddef>

#include "schema/result.h"

namespace dtrain {

// Every connection, journal, pipe and pidfd is a descriptor: takes what the user may have at most. Once,
// early, before other threads exist. A process of ours that is started from here without spawn() learns
// from the environment what the limit was (DTRAIN_NOFILE).
void raise_descriptor_limit();

// Gives this process the limit back that it came with: some programs fail above 1024 (select), others
// close every number up to it. Async-signal-safe, for between fork and exec. Does nothing where it was
// not raised.
void restore_descriptor_limit();

// How many this process may have now.
size_t descriptor_limit();

// ResourceExhausted when this process can't have `count` descriptors more. For before anything is begun by
// libraries that abort or throw where they find none (gRPC, Asio).
Status check_descriptors_left(size_t count);

}  // namespace dtrain
