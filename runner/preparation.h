// The file side of a launch: what must lie on disk before its keeper may start. Blocking; runs on a
// file worker's thread.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "runner/launch_dir.h"
#include "runner/launch_site.h"
#include "schema/dtrain.pb.h"
#include "schema/result.h"

namespace dtrain::runner {

// Which of two ways a preparation failed, by the code of its error: InvalidArgument and
// FailedPrecondition are for the user to mend, anything else is this host's fault.
bool is_hosts_fault(const Error& error);

// What this host lacks of what the launch names by path, data sets and python, of what images need, or of dtrain's own
// executables; empty: nothing. To be asked before anything is fetched for it. `outputs_are_here`: the daemon's.
Result<std::string> lacking_here(const LaunchSite& site, const pb::Launch& launch, bool outputs_are_here);

// Where the outputs of a launch are on this host: at the daemon's place, or in a copy that is brought here.
struct PlacedOutputs {
  std::string directory;
  std::string resumed = {};   // what it goes on from, where that is not by the path of its Spec
  std::string after = {};     // what it comes after has written; empty: it comes after none
};
// In a copy; `wanted` is asked while they are brought.
Result<PlacedOutputs> place_outputs(const LaunchSite& site, const pb::Launch& launch, const std::function<bool()>& wanted);

// Checks, fetches, mounts, and writes the record last: once this returns, the launch survives the
// runner. On error nothing of it is left, and nothing either of a build whose environment is made
// already: then there is no record.
Result<std::optional<LaunchRecord>> prepare_launch(const LaunchSite& site, const pb::Launch& launch,
                                                   const PlacedOutputs& outputs, const LaunchDir& directory);

// The port a replica was leased, from its environment: how a later runner knows it.
int leased_port(const ReplicaLaunch& replica);

}  // namespace dtrain::runner
