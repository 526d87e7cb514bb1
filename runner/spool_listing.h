// Which segments of which spools lie in a launch's directory: read once for all replicas that ask in the
// same round, because a gang of n would otherwise read n names n times.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "runner/launch_dir.h"

namespace dtrain::runner {

// Owner: the launch. Thread: the caller's.
class SpoolListing {
 public:
  explicit SpoolListing(LaunchDir directory) : directory_(std::move(directory)) {}

  const LaunchDir& directory() const { return directory_; }
  // A new round: the next question reads the directory again.
  void forget() { known_.reset(); }
  // Of the segments that are there; nullopt: the directory can't be read.
  std::optional<std::set<uint64_t>> sequences(const ReplicaId& replica);

 private:
  bool read();

  LaunchDir directory_;
  std::optional<std::map<std::string, std::set<uint64_t>>> known_;  // by the replica's id
};

}  // namespace dtrain::runner
