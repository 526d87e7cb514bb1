// Cleaning up after a keeper that is dead: nothing it started may live on. Blocking.
#pragma once

#include <map>

#include "runner/launch_dir.h"
#include "runner/launch_facts.h"

namespace dtrain::runner {

// Kills every process of the launch, its keeper too, found by every mark there is.
void kill_launch(const LaunchDir& directory);

// kill_launch, then an exit for each replica that has none: "keeper died ...". Returns them, written
// down or not.
std::map<ReplicaId, ReplicaExit> end_lost_launch(const LaunchDir& directory);

// Lets go of the view of every replica of the launch.
void release_all_work(const LaunchDir& directory);

}  // namespace dtrain::runner
