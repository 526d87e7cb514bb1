// Cleaning up after a keeper that is dead: nothing it started may live on. Blocking.
#pragma once

#include <utility>
#include <vector>

#include "runner/launch_dir.h"

namespace dtrain::runner {

// Kills every process of the launch, its keeper too, found by every mark there is.
void kill_launch(const LaunchDir& directory);

// kill_launch, then an exit file for each replica that has none: "keeper died ...". What was
// written.
std::vector<std::pair<ReplicaId, ExitFile>> end_lost_launch(const LaunchDir& directory,
                                                            const ProcessIdentity& keeper);

// Lets go of the view of every replica of the launch.
void release_all_work(const LaunchDir& directory);

}  // namespace dtrain::runner
