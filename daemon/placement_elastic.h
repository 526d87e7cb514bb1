// Gangs that make do with fewer workers than they ask for (Spec::elastic), on what there is.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "daemon/placement.h"

namespace dtrain::daemon {

// The smallest gang that does: what has no room for that waits. The spec itself, which has to outlive this, where it is
// not elastic.
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

// Of a placed gang: how many of Role::Worker it lacks of all that it asks for.
int workers_left_out(const Spec& spec, const std::vector<Seat>& seats);
int workers_left_out(const Experiment& experiment);   // those that were lost as well
// "3 of 8 workers", the master counted as `worker:` counts it; empty when none is left out.
std::string size_text(const Spec& spec, int left_out);

// Whether it is one of the replicas of a larger gang than that which is placed now, or was last.
bool is_left_out(const Experiment& experiment, const ReplicaId& replica);

// When one that is begun now may be begun again with more; 0: never.
TimeMs grows_from(const Spec& spec, TimeMs now);
// Whether it runs with fewer workers than it asks for, and is to be begun again when it can have more.
bool may_grow(const Experiment& experiment);

// The seats of the larger gang, were those of this one free. Nothing where it could have no more workers than it has,
// or where somebody who waits would find room, too: it takes only what nobody waits for. `free`: model.free as one that
// may be changed; it is as it was when this returns.
std::optional<std::vector<Seat>> larger_gang(const Model& model, const Experiment& experiment, FreeHosts& free, TimeMs now);

}  // namespace dtrain::daemon
