// What a person asked about by ID: does it exist, who takes part, how does it stand. Pure over
// Scheduler::Known.
#pragma once

#include <string>
#include <vector>

#include "daemon/scheduler.h"

namespace dtrain::daemon {

// NotFound with what does exist: "experiment 4 has no replica worker.7; it has master, worker.1-2, ps.1".
Status check_exists(const Scheduler::Known& known, const IdPattern& pattern);

// Ids of the experiment, its members and their replicas, as far as the pattern names them. Large sets
// list only the widest: readers use them for the width of a column.
std::vector<std::string> watched_ids(const Scheduler::Known& known, const IdPattern& pattern);

// Of the set, the member or the one experiment that `id` names.
pb::ExperimentInfo summary_of(const Scheduler::Known& known, const ExperimentId& id,
                              const Model& model, TimeMs now);

// The members to list: of more than `most`, what runs comes before what failed, what waits and what
// finished. In order.
inline constexpr size_t kShownMembersMax = 2'000;
std::vector<const Experiment*> shown_members(const Scheduler::Known& known,
                                             size_t most = kShownMembersMax);

// `id` 4 of a set means all of it; 4.2 one member. Empty when there is no such member.
std::vector<const Experiment*> members_of(const Scheduler::Known& known, const ExperimentId& id);

}  // namespace dtrain::daemon
