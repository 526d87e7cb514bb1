#include "daemon/quota.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "daemon/placement_elastic.h"
#include "daemon/queue.h"
#include "schema/tensorboard.h"
#include "schema/text_formats.h"

namespace dtrain::daemon {

namespace {

Room whole_quota(const Quota& quota) {
  Room room;
  room.cpus = quota.cpus.value_or(std::numeric_limits<double>::infinity());
  room.memory_bytes = quota.memory_bytes ? static_cast<int64_t>(*quota.memory_bytes) : std::numeric_limits<int64_t>::max() / 2;
  room.gpus = quota.gpus.value_or(std::numeric_limits<int>::max() / 2);
  return room;
}

// Who needs none of something may begin where there is less than none of it.
bool is_within(const Room& wanted, const Room& room) {
  const auto is_less = [](auto some, auto most) { return some <= 0 || some <= most; };
  return is_less(wanted.cpus, room.cpus + kCpuSlack) && is_less(wanted.memory_bytes, room.memory_bytes) && is_less(wanted.gpus, room.gpus);
}

bool has_no_quota(const Spec& spec) { return spec.preemptible || is_only_tensorboard(spec); }

bool is_counted(const Experiment& experiment) { return !has_no_quota(experiment.spec()) && !experiment.is_shared(); }

Room held_by(const Experiment& experiment) {
  Room held;
  for (const Replica& replica : experiment.replicas) {
    if (holds_seat(experiment, replica)) held += room_of(replica.seat);
  }
  return held;
}

Room used_by(const Model& model, const std::string& user) {
  const auto found = model.users.find(user);
  return found == model.users.end() ? Room() : found->second.counted;
}

void count(Model& model, const Experiment& experiment, const Seat& seat, int sign) {
  if (experiment.is_shared() || is_only_tensorboard(experiment.spec())) return;
  const std::string& user = experiment.submission->user;
  UserHas& has = model.users[user];
  Room& sum = experiment.spec().preemptible ? has.preemptible : has.counted;
  sum += room_of(seat) * sign;
  if (sum.ports == 0) sum = {};   // nothing is left of a sum of fractions
  if (has.counted.ports == 0 && has.preemptible.ports == 0) model.users.erase(user);
}

// Of a gang that it is to have; what it holds is counted as its user's.
Room still_needed(const Experiment& experiment, const Spec& gang) {
  Room room = room_of(gang);
  room -= held_by(experiment);
  return most_of(room, {});
}

// The first of its resources that is more than there is.
// `has`: nothing: it is about what could ever be.
std::string over_text(const Quota& quota, const std::string& user, const Room& wanted, const std::optional<Room>& has) {
  const Room used = has.value_or(Room());
  const auto text = [&](const std::string& needs, const std::string& most, const std::string& now) {
    return has ? fmt::format("needs {}, and {}, who may have {} at once, has {}", needs, user, most, now)
               : fmt::format("needs {}, and {} may have {} at once", needs, user, most);
  };
  if (quota.gpus && wanted.gpus > 0 && wanted.gpus > *quota.gpus - used.gpus) {
    return text(fmt::format("{} GPU{}", wanted.gpus, wanted.gpus == 1 ? "" : "s"), fmt::format("{}", *quota.gpus), fmt::format("{}", used.gpus));
  }
  if (quota.cpus && wanted.cpus > 0 && wanted.cpus > *quota.cpus - used.cpus + kCpuSlack) {
    return text(fmt::format("{:.5g} cpu{}", wanted.cpus, wanted.cpus == 1 ? "" : "s"), fmt::format("{:.5g}", *quota.cpus), fmt::format("{:.5g}", used.cpus));
  }
  const auto most = static_cast<int64_t>(quota.memory_bytes.value_or(0));
  if (!quota.memory_bytes || wanted.memory_bytes <= 0 || wanted.memory_bytes <= most - used.memory_bytes) return "";
  const auto memory = [](int64_t bytes) { return format_memory(static_cast<uint64_t>(std::max<int64_t>(bytes, 0))); };
  return text(memory(wanted.memory_bytes), memory(most), memory(used.memory_bytes));
}

// Quotas were changed since it was submitted.
bool is_over_for_ever(const Model& model, const Experiment& experiment) {
  const Quota* const quota = quota_of(model, experiment);
  return quota != nullptr && !is_within(room_of(LeastGang(experiment.spec()).spec()), whole_quota(*quota));
}

}  // namespace

const Quota* quota_of(const Model& model, const std::string& user) {
  for (const Quota& quota : model.quotas) {
    if (quota.user.empty() || quota.user == user) return &quota;
  }
  return nullptr;
}

const Quota* quota_of(const Model& model, const Experiment& experiment) {
  return is_counted(experiment) ? quota_of(model, experiment.submission->user) : nullptr;
}

void take_seat(Model& model, const Experiment& experiment, const Seat& seat) {
  model.free.take(seat);
  count(model, experiment, seat, 1);
}

void give_seat(Model& model, const Experiment& experiment, const Seat& seat) {
  model.free.give(seat);
  count(model, experiment, seat, -1);
}

void count_users(Model& model) {
  model.users.clear();
  for (const ExperimentId& id : model.live) {
    const Experiment& experiment = model.experiments.at(id);
    for (const Replica& replica : experiment.replicas) {
      if (holds_seat(experiment, replica)) count(model, experiment, replica.seat, 1);
    }
  }
}

std::optional<Room> quota_left(const Model& model, const Experiment& experiment) {
  const Quota* const quota = quota_of(model, experiment);
  if (quota == nullptr) return std::nullopt;
  Room left = whole_quota(*quota);
  left -= used_by(model, experiment.submission->user);
  left += held_by(experiment);
  return left;
}

bool is_within(const Spec& spec, const Room& room) { return is_within(room_of(spec), room); }

KeptQuota::KeptQuota(const Model& model) : model_(model) {
  if (model.quotas.empty()) return;
  for (const QueueOrder& order : model.returning) keep(model.experiments.at(order.id));
  for (const QueueOrder& order : model.regrowing) keep_all(model.experiments.at(order.id));
}

// Nothing once it has its place, which is counted as its user's.
Room KeptQuota::kept_by(const QueueOrder& order, bool whole) const {
  const Experiment& experiment = model_.experiments.at(order.id);
  return still_needed(experiment, whole ? experiment.spec() : LeastGang(experiment.spec()).spec());
}

std::optional<Room> KeptQuota::left_for(const Experiment& experiment) const {
  std::optional<Room> left = quota_left(model_, experiment);
  const auto kept = left ? kept_.find(experiment.submission->user) : kept_.end();
  if (kept == kept_.end()) return left;
  for (const auto& [order, whole] : kept->second) {
    if (order < order_of(experiment)) *left -= kept_by(order, whole);
  }
  return left;
}

bool KeptQuota::is_over(const Experiment& experiment) const {
  const std::optional<Room> left = left_for(experiment);
  return left && !is_within(LeastGang(experiment.spec()).spec(), *left);
}

void KeptQuota::keep(const Experiment& experiment) { keep(experiment, false); }

void KeptQuota::keep(const Experiment& experiment, bool whole) {
  if (quota_of(model_, experiment) != nullptr) kept_[experiment.submission->user].insert_or_assign(order_of(experiment), whole);
}

void KeptQuota::wait_for(const Experiment& experiment) {
  if (!is_over_for_ever(model_, experiment) && first_.insert(experiment.submission->user).second) keep(experiment);
}

std::string over_quota_for_ever(const Model& model, const Spec& spec, const std::string& user) {
  const Quota* const quota = has_no_quota(spec) ? nullptr : quota_of(model, user);
  if (quota == nullptr) return "";
  const std::vector<Spec> shapes = shapes_of(spec);
  for (const Spec& shape : shapes) {
    if (const std::string over = over_text(*quota, user, room_of(LeastGang(shape).spec()), std::nullopt); !over.empty()) return over;
  }
  return shapes.empty() ? over_text(*quota, user, room_of(LeastGang(spec).spec()), std::nullopt) : "";
}

std::string over_quota_text(const Model& model, const Spec& spec, const std::string& user) {
  const Quota* const quota = has_no_quota(spec) ? nullptr : quota_of(model, user);
  return quota == nullptr ? "" : over_text(*quota, user, room_of(LeastGang(spec).spec()), used_by(model, user));
}

std::string over_quota_text(const Model& model, const Experiment& experiment) {
  if (!is_counted(experiment)) return "";
  return over_quota_text(model, experiment.spec(), experiment.submission->user);
}

std::string kept_quota_text(const ExperimentId& other, const std::string& user) {
  return fmt::format("{} is ahead of it, and with both {} would have more than its quota", to_string(other), user);
}

std::string quota_wait_text(const Model& model, const Spec& spec, const std::string& user) {
  if (std::string over = over_quota_text(model, spec, user); !over.empty()) return over;
  auto submission = std::make_shared<Submission>();
  submission->number = UINT32_MAX;   // behind all of its priority
  submission->user = user;
  submission->spec = spec;
  const auto other = who_keeps_quota(model, first_state(submission, 0), false);
  return other ? kept_quota_text(*other, user) : "";
}

std::vector<UserUse> users_of(const Model& model) {
  std::map<std::string, UserUse> users;
  for (const Quota& quota : model.quotas) {
    if (!quota.user.empty()) users[quota.user] = {quota.user, used_by(model, quota.user), &quota};
  }
  for (const auto& [user, has] : model.users) {
    const Quota* const quota = quota_of(model, user);
    if (quota != nullptr || !model.fair_share.empty()) users[user] = {user, used_by(model, user), quota};
  }
  std::vector<UserUse> all;
  for (auto& [user, use] : users) all.push_back(std::move(use));
  return all;
}

bool has_other_ahead(const Model& model, const Experiment& experiment, const std::vector<const Experiment*>& ahead) {
  if (quota_of(model, experiment) == nullptr) return false;
  return std::ranges::any_of(ahead, [&](const Experiment* other) {
    const bool is_own = other->id != experiment.id && is_counted(*other) && other->submission->user == experiment.submission->user;
    return is_own && !is_over_for_ever(model, *other);
  });
}

std::optional<ExperimentId> who_keeps_quota(const Model& model, const Experiment& experiment, bool whole) {
  std::optional<Room> left = quota_left(model, experiment);
  if (!left) return std::nullopt;
  const LeastGang least(experiment.spec());
  const Spec& wanted = whole ? experiment.spec() : least.spec();
  std::set<QueueOrder> ahead;   // of each lane the first: the others keep nothing
  for (const auto& [lane, waiting] : model.queue.lanes) {
    const Experiment& first = model.experiments.at(waiting.begin()->id);
    const bool is_own = is_counted(first) && first.submission->user == experiment.submission->user;
    if (is_own && !is_over_for_ever(model, first)) ahead.insert(*waiting.begin());
  }
  for (const QueueOrder& order : model.returning) {
    const Experiment& other = model.experiments.at(order.id);
    if (is_counted(other) && other.submission->user == experiment.submission->user) ahead.insert(order);
  }
  for (const QueueOrder& order : ahead) {
    if (!(order < order_of(experiment))) break;
    const Experiment& other = model.experiments.at(order.id);
    *left -= still_needed(other, other.regrows ? other.spec() : LeastGang(other.spec()).spec());
    if (!is_within(wanted, *left)) return order.id;
  }
  return std::nullopt;
}

}  // namespace dtrain::daemon
