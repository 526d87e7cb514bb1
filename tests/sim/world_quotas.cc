// That no user has more at once than the quotas say, and that who waits for its own user's others is not passed by them.
#include <algorithm>

#include "daemon/placement_elastic.h"
#include "daemon/queue.h"
#include "sim/world.h"

namespace dtrain::sim {

using namespace daemon;

namespace {

// In thousandths of a cpu, so that sums are exact.
struct Amount {
  int64_t cpus = 0, memory_bytes = 0, gpus = 0;
  void add(double more_cpus, uint64_t more_memory, size_t more_gpus) {
    cpus += static_cast<int64_t>(more_cpus * 1'000 + 0.5);
    memory_bytes += static_cast<int64_t>(more_memory);
    gpus += static_cast<int64_t>(more_gpus);
  }
};

Amount held_by(const Experiment& experiment) {
  Amount held;
  for (const Replica& replica : experiment.replicas) {
    if (holds_seat(experiment, replica)) held.add(replica.seat.cpus, replica.seat.memory_bytes, replica.seat.gpus.size());
  }
  return held;
}

Amount needed_by(const Experiment& experiment) {
  Amount needed;
  const LeastGang least(experiment.spec());
  for (const RoleSpec& role : least.spec().roles) {
    for (int i = 0; i < role.count; ++i) needed.add(role.resources.cpus, role.resources.memory_bytes, static_cast<size_t>(role.resources.gpus));
  }
  return needed;
}

Amount sum(Amount a, const Amount& b) { return {a.cpus + b.cpus, a.memory_bytes + b.memory_bytes, a.gpus + b.gpus}; }

// Of whom a quota says something.
const Quota* told_quota(const std::vector<Quota>& quotas, const Experiment& experiment) {
  if (experiment.spec().preemptible || experiment.is_shared()) return nullptr;
  for (const Quota& quota : quotas) {
    if (quota.user == experiment.submission->user || quota.user.empty()) return &quota;
  }
  return nullptr;
}

bool is_more(const Amount& amount, const Quota& quota) {
  return (quota.cpus && amount.cpus > 0 && amount.cpus > static_cast<int64_t>(*quota.cpus * 1'000 + 0.5)) ||
         (quota.memory_bytes && amount.memory_bytes > static_cast<int64_t>(*quota.memory_bytes)) || (quota.gpus && amount.gpus > 0 && amount.gpus > *quota.gpus);
}

bool waits_for_quota(const Amount& has, const Amount& needs, const Quota& quota) {
  const Amount both = sum(has, needs);
  return (needs.cpus > 0 && is_more({both.cpus, 0, 0}, quota)) || (needs.memory_bytes > 0 && is_more({0, both.memory_bytes, 0}, quota)) ||
         (needs.gpus > 0 && is_more({0, 0, both.gpus}, quota));
}

}  // namespace

// Whose user has another ahead of it that waits or comes back: whether it keeps hosts free depends on what that one keeps.
bool World::is_behind_in_quota(const Experiment& experiment) const {
  if (told_quota(quotas_, experiment) == nullptr) return false;
  return std::ranges::any_of(model_->live, [&](const ExperimentId& id) {
    const Experiment& other = model_->experiments.at(id);
    const bool is_own = other.submission->user == experiment.submission->user && told_quota(quotas_, other) != nullptr;
    const bool comes = is_queued(other) || model_->returning.contains(order_of(other));
    return is_own && comes && order_of(other) < order_of(experiment);
  });
}

// Whom hosts are kept free for may have them when they are free.
void World::check_quota_of_head(const Experiment& head, const std::vector<ExperimentId>& waited) const {
  const Quota* const quota = told_quota(quotas_, head);
  if (quota == nullptr) return;
  const std::string& user = head.submission->user;
  const auto users = users_have();
  const auto known = users.find(user);
  const UserHas has = known == users.end() ? UserHas() : known->second;
  Amount behind;
  for (auto it = std::ranges::find(waited, head.id); it != waited.end(); ++it) {
    const Experiment& other = model_->experiments.at(*it);
    if (other.submission->user == user && told_quota(quotas_, other) != nullptr && !is_queued(other)) behind = sum(behind, held_by(other));
  }
  const Amount needs = needed_by(head);
  const Amount others{has.cpus - behind.cpus, has.memory_bytes - behind.memory_bytes, has.gpus - behind.gpus};
  require(waits_for_quota(others, needs, *quota) || !waits_for_quota(sum(others, behind), needs, *quota),
          [&] { return "who goes ahead of " + to_string(head.id) + " takes none of the quota that it will need"; });
}

void World::make_quotas() {
  if (chance(60)) return;
  const auto quota = [&](const std::string& user) {
    Quota made{user, {}, {}, {}};
    if (chance(50)) made.cpus = 2 + static_cast<double>(below(12)) * 0.5;
    if (chance(30)) made.memory_bytes = (uint64_t{4} + below(12)) << 30;
    if (chance(50)) made.gpus = static_cast<int>(1 + below(5));
    return made;
  };
  quotas_.push_back(quota("anna"));
  if (chance(50)) quotas_.push_back(quota(""));
}

bool World::exceeds_quota(const Experiment& experiment) const {
  const Quota* const quota = told_quota(quotas_, experiment);
  return quota != nullptr && is_more(needed_by(experiment), *quota);
}

std::map<std::string, World::UserHas> World::users_have() const {
  std::map<std::string, UserHas> users;
  for (const ExperimentId& id : model_->live) {
    const Experiment& experiment = model_->experiments.at(id);
    if (experiment.spec().preemptible || experiment.is_shared()) continue;
    const Amount held = held_by(experiment);
    UserHas& has = users[experiment.submission->user];
    has.cpus += held.cpus;
    has.memory_bytes += held.memory_bytes;
    has.gpus += held.gpus;
  }
  return users;
}

void World::check_quotas() const {
  EachHas told;
  const auto tell = [&](const std::string& user, bool preemptible, const Room& sum) {
    if (sum.ports > 0) told[{user, preemptible}] = {static_cast<int64_t>(sum.cpus * 1'000 + 0.5), sum.memory_bytes, sum.gpus};
  };
  for (const auto& [user, has] : model_->users) {
    tell(user, false, has.counted);
    tell(user, true, has.preemptible);
  }
  EachHas has = each_has();
  const auto holds_nothing = [](const auto& one) { return one.second == UserHas(); };
  std::erase_if(has, holds_nothing);
  std::erase_if(told, holds_nothing);
  require(told == has, "what users have follows from what is held");
}

// Were all hosts empty that are here or may be brought.
bool World::has_a_place_somewhere(const Experiment& experiment) const {
  Choice choice = choice_of(*model_, experiment);
  choice.quota_left.reset();
  const LeastGang least(experiment.spec());
  return stretch_needed(experiment.id, least.spec(), emptied(model_->free, obtainable(model_->free, choice)), choice) > 0;
}

// Of each user the first that waits for the quota: those of the same user that were placed behind it in this pass leave it what it
// waits for, so that it is no worse off than without them.
void World::check_quota_order(const std::vector<ExperimentId>& waited, const std::map<std::string, UserHas>& before) {
  std::map<std::string, const Experiment*> first;
  std::map<std::string, Amount> had, ahead;
  for (const auto& [user, has] : before) had[user] = {has.cpus, has.memory_bytes, has.gpus};
  for (const ExperimentId& id : waited) {
    const Experiment& experiment = model_->experiments.at(id);
    const Quota* const quota = told_quota(quotas_, experiment);
    if (quota == nullptr || experiment.outcome) continue;
    const std::string& user = experiment.submission->user;
    Amount& has = had[user];
    if (!is_queued(experiment)) {
      const Amount held = held_by(experiment);
      // A host that was given up and comes back may have brought a user more than that; nobody is placed then.
      require(!waits_for_quota(has, held, *quota), [&] { return to_string(experiment.id) + " is placed, and " + user + " has more than the quota"; });
      const auto other = first.find(user);
      if (other != first.end()) {
        const Amount needs = needed_by(*other->second);
        const bool takes = (quota->cpus && held.cpus > 0 && sum(sum(has, held), needs).cpus > static_cast<int64_t>(*quota->cpus * 1'000 + 0.5)) ||
                           (quota->gpus && held.gpus > 0 && sum(sum(has, held), needs).gpus > *quota->gpus) ||
                           (quota->memory_bytes && sum(sum(has, held), needs).memory_bytes > static_cast<int64_t>(*quota->memory_bytes));
        require(!takes, [&] { return to_string(experiment.id) + " takes of the quota what " + to_string(other->second->id) + " waits for"; });
        counts_.add(Seen::PassedWithinQuota);
      }
      has = sum(has, held);
    } else if (waits_for_quota(has, needed_by(experiment), *quota)) {
      counts_.add(Seen::OverQuota);
      if (!exceeds_quota(experiment) && has_a_place_somewhere(experiment)) first.try_emplace(user, &experiment);
    }
  }
}

}  // namespace dtrain::sim
