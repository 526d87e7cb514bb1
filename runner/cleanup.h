// The file side of a launch's end: what is collected of it, and how what a preparation made goes away
// again. Blocking; runs on a file worker's thread.
#pragma once

#include <set>
#include <string>

#include "runner/environments.h"
#include "runner/preparation.h"

namespace dtrain::runner {

// After the replica's last process: takes `outputs` of the Spec from its view into OUTPUT_DIR and
// lets go of the view. What it left elsewhere is kept and named, with what could not be taken: "left 1.2 GB
// in log/, kept ...; not collected: ckpt/pipe: not a file"; and of the one who decides the outcome what
// there was none of: "outputs that were not there: best". Without room, descriptors or memory for that:
// ResourceExhausted, and it is to be done again.
struct ReleasedWork {
  std::string remarks;
  bool keeps = false;   // something is left: not to be removed
};
// `may_be_outrun`: by a later attempt, whose outputs stay as they are.
Result<ReleasedWork> release_work(const LaunchRecord& launch, const LaunchDir& directory, const ReplicaId& id,
                                  bool may_be_outrun);

// Deletes the view of a replica that left nothing behind. False: not now.
bool remove_work(const LaunchRecord& launch, const ReplicaId& id);

// Deletes the launch directory and its groups; what replicas left behind stays. False: not now, above all
// while a process is in a group.
bool remove_launch(const LaunchDir& directory);

// Deletes all that a preparation made which did not come to its end, views too. False: not now.
bool remove_unprepared(const LaunchSite& site, const LaunchDir& directory);

// After a launch was removed: deletes trees beyond the site's limit, but none that a launch here uses.
void trim_trees(const LaunchSite& site);

// Deletes the trees that no launch here uses, and what that would give back now.
void prune_trees(const LaunchSite& site);
uint64_t unused_tree_bytes(const LaunchSite& site);

// Puts the environments away that no launch here uses, and containers that killed builds left. `live` are
// launches of which something runs or may still: others use none, though their directories may not be gone yet.
void prune_environments(const LaunchSite& site, const std::set<LaunchId>& live);
// What that would delete now.
Environments count_unused_environments(const LaunchSite& site, const std::set<LaunchId>& live);

// Deletes what was discarded and, where ages are believed, what replicas left behind longer than a week ago. `held` are
// launches to spare.
void remove_old_work(const LaunchSite& site, const std::set<LaunchId>& held, bool ages_believed);

}  // namespace dtrain::runner
