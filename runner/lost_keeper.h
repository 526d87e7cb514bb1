// Cleaning up after a keeper that is dead: nothing it started may live on. Blocking.
#pragma once

#include <map>
#include <string_view>

#include "runner/launch_dir.h"
#include "runner/launch_facts.h"
#include "schema/result.h"

namespace dtrain::runner {

// What the exit of a replica whose keeper was gone says, for want of an exit of its own.
constexpr std::string_view kKeeperDied = "its keeper died";
constexpr std::string_view kHostRestarted = "its host was restarted";

// Kills every process of the launch, its keeper too, found by every mark there is. To be done again on
// ResourceExhausted: there were no descriptors to find them; and on DeadlineExceeded: one hangs in the
// kernel.
Status kill_launch(const LaunchDir& directory);

// kill_launch, then an exit for each replica that has none, with one of the causes above. Returns
// them, written down or not.
Result<std::map<ReplicaId, ReplicaExit>> end_lost_launch(const LaunchDir& directory);

}  // namespace dtrain::runner
