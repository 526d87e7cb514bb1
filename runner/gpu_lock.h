// One lock a GPU for everybody on this machine, so that two dtrains, of one user or of two, never use
// the same one at a time. Keepers hold them, from before a replica starts until it is released.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "schema/dtrain.pb.h"

namespace dtrain::runner {

// /run/lock/dtrain-gpu-<uuid>, without /run/lock in /tmp. By its index when the driver tells no uuid.
std::filesystem::path gpu_lock(const std::string& uuid, int index);

// Adds to `busy` who holds the locks of these GPUs: "another dtrain of anna, pid 4242". `is_ours` is asked
// for each keeper's pid.
void mark_locked_gpus(pb::Inventory& inventory, const std::function<bool(int pid)>& is_ours);

}  // namespace dtrain::runner
