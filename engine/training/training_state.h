// state.json of a checkpoint: what a training that goes on from it must have in common with the one that
// wrote it, so that it does what that one would have done.
#pragma once

#include <string>

#include "engine/formats/checkpoint.h"
#include "engine/training/run_plan.h"

namespace dtrain::engine {

// `leaves`: that each batch was cut into.
std::string state_of(const RunPlan& plan, int64_t leaves, int64_t steps, int64_t updates);
// The updates that the state of a checkpoint has seen.
int64_t updates_of(const FoundCheckpoint& found);

// InvalidArgument says what differs: the seed, the batch, what counts as an epoch, the optimizer, or the
// data, of which all is compared that is known without keeping their sum.
Status check_state(const RunPlan& plan, const FoundCheckpoint& found);

// What to say of a checkpoint that check_state() lets pass, but whose steps were computed with other instructions or
// summed over other leaves, so that those to come are not, bit for bit, what they would have been; empty: with the same.
std::string other_bits(const RunPlan& plan, int64_t leaves, const FoundCheckpoint& found);

// Optimiser state of that number, before the names of its tensors.
std::string state_prefix(int index);

}  // namespace dtrain::engine
