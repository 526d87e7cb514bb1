// What the experiments of one user may have at once: config.yml's `quotas`. Inside the pure core only.
//
// What is preemptible has no part in it, for it takes what nobody else wants; nor has a TensorBoard of its own, nor
// what the members of a set share. Who waits for its own user's others holds up nobody but those of the same user: the first of
// them keeps what it waits for from those behind it, unless no host could ever hold it. And whoever keeps hosts free (claims.h),
// or comes back, keeps its quota, too.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/model.h"
#include "daemon/placement.h"

namespace dtrain::daemon {

// Null: no limit.
const Quota* quota_of(const Model& model, const std::string& user);
// That its user has, if it counts.
const Quota* quota_of(const Model& model, const Experiment& experiment);

// A seat of the experiment is taken, or given back: in model.free, and of what its user has.
void take_seat(Model& model, const Experiment& experiment, const Seat& seat);
void give_seat(Model& model, const Experiment& experiment, const Seat& seat);
// From all seats that are held.
void count_users(Model& model);

// What it may have, were all that it has itself given back; nothing: as much as there is.
std::optional<Room> quota_left(const Model& model, const Experiment& experiment);
// All replicas together; ports don't count.
bool is_within(const Spec& spec, const Room& room);

// In one pass over several that wait, in their order: what is not yet theirs and counts for those behind them.
class KeptQuota {
 public:
  // Those that come back, between two attempts or for more workers, keep theirs from the beginning.
  explicit KeptQuota(const Model& model);
  std::optional<Room> left_for(const Experiment& experiment) const;
  bool is_over(const Experiment& experiment) const;   // also its least gang
  // As much as it takes to begin.
  void keep(const Experiment& experiment);
  // As much as it would have.
  void keep_all(const Experiment& experiment) { keep(experiment, true); }
  // It is over; of each user the first keeps what it waits for.
  void wait_for(const Experiment& experiment);

 private:
  void keep(const Experiment& experiment, bool whole);

  const Model& model_;
  Room kept_by(const QueueOrder& order, bool whole) const;

  std::map<std::string, std::map<QueueOrder, bool>> kept_;   // by users: who, and whether all that it would have
  std::set<std::string> first_;                              // users of whom one waits for the others
};

// Why it could never run, or a member of it: "needs 8 GPUs, and anna may have 4 at once"; empty: it could.
std::string over_quota_for_ever(const Model& model, const Spec& spec, const std::string& user);
// "needs 2 GPUs, and anna, who may have 4 at once, has 3"; empty: it is within it.
std::string over_quota_text(const Model& model, const Experiment& experiment);
std::string over_quota_text(const Model& model, const Spec& spec, const std::string& user);   // were it submitted now
// The same; or who of the same user waits ahead of it for what would not do for both.
std::string quota_wait_text(const Model& model, const Spec& spec, const std::string& user);
std::string kept_quota_text(const ExperimentId& other, const std::string& user);

// Who has something, or a quota of their own; none where there are neither quotas nor shares.
struct UserUse {
  std::string user;
  Room used;
  const Quota* quota;   // null: no limit
};
std::vector<UserUse> users_of(const Model& model);

// Who of the same user is ahead of one that waits and, with it, would be over the quota. `whole`: with all of its workers.
std::optional<ExperimentId> who_keeps_quota(const Model& model, const Experiment& experiment, bool whole);
// Whether one of the same user is ahead of it: that is not to find the quota used up.
bool has_other_ahead(const Model& model, const Experiment& experiment, const std::vector<const Experiment*>& ahead);

}  // namespace dtrain::daemon
