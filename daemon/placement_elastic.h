// Gangs that make do with fewer workers than they ask for (Spec::elastic), on what there is. When one that runs gets
// more of them: growth.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "daemon/placement.h"

namespace dtrain::daemon {

// The smallest gang that does: what has no room for that waits. The spec itself, which has to outlive this, where it is
// not elastic; else only what a place depends on.
class LeastGang {
 public:
  explicit LeastGang(const Spec& spec);
  const Spec& spec() const { return smaller_ ? *smaller_ : whole_; }

 private:
  const Spec& whole_;
  std::optional<Spec> smaller_;
};

// fit() of the largest of the gang's sizes that finds room.
std::optional<std::vector<Seat>> fit_largest(const ExperimentId& id, const Spec& spec, const FreeHosts& hosts,
                                             const Choice& choice);

// How many of Role::Worker there are no seats for, or were none when it was placed.
int missing_workers(const Spec& spec, const std::vector<Seat>& seats);
int missing_workers(const Experiment& experiment);
bool is_missing(const Experiment& experiment, const ReplicaId& replica);
inline constexpr const char* kNoRoomForIt = "there is no room for it";
// "3 of 8 workers", the master counted as `worker:` counts it; empty when none is missing.
std::string workers_text(const Spec& spec, int missing);

}  // namespace dtrain::daemon
