#include "daemon/placement_elastic.h"

#include <fmt/format.h>

#include <algorithm>

#include "daemon/queue.h"

namespace dtrain::daemon {

namespace {

void set_workers(Spec& spec, int count) {
  for (RoleSpec& role : spec.roles) {
    if (role.role == Role::Worker) role.count = count;
  }
  std::erase_if(spec.roles, [](const RoleSpec& role) { return role.count == 0; });
}

int workers_of(const Spec& spec) {
  const RoleSpec* const role = spec.role(Role::Worker);
  return role == nullptr ? 0 : role->count;
}

// The first of each kind of those that wait, and no more of them than can be asked each time that something changes.
bool somebody_fits(const Model& model, const FreeHosts& free, TimeMs now) {
  constexpr size_t kLooksMax = 64;
  if (model.queue.lanes.size() > kLooksMax) return true;
  return std::any_of(model.queue.lanes.begin(), model.queue.lanes.end(), [&](const auto& lane) {
    const Experiment& waiting = model.experiments.at(lane.second.begin()->id);
    Choice choice = choice_of(model, waiting);
    choice.now = now;
    return fit(waiting.id, LeastGang(waiting.spec()).spec(), free, choice).has_value();
  });
}

// On their way into the queue, and in no lane yet.
bool somebody_comes_back(const Model& model, const Experiment& experiment) {
  return std::any_of(model.live.begin(), model.live.end(), [&](const ExperimentId& id) {
    const Experiment& other = model.experiments.at(id);
    const bool between = other.phase == Phase::Ending || (wants_place(other) && !is_queued(other));
    return id != experiment.id && between && !other.outcome && !other.suspended;
  });
}

}  // namespace

LeastGang::LeastGang(const Spec& spec) : whole_(spec) {
  if (!spec.elastic) return;
  smaller_ = spec;
  set_workers(*smaller_, spec.elastic->least_workers);
}

std::optional<std::vector<Seat>> fit_largest(const ExperimentId& id, const Spec& spec, const FreeHosts& hosts,
                                             const Choice& choice) {
  if (auto seats = fit(id, spec, hosts, choice)) return seats;
  if (!spec.elastic || choice.whole) return std::nullopt;
  std::optional<std::vector<Seat>> largest;
  Spec gang = spec;
  // With what has room, less has: by halves, and the least of all is asked for last.
  int least = spec.elastic->least_workers, most = workers_of(spec) - 1;
  while (least <= most) {
    const int middle = least + (most - least) / 2;
    gang.roles = spec.roles;
    set_workers(gang, middle);
    if (auto seats = fit(id, gang, hosts, choice)) {
      largest = std::move(seats);
      least = middle + 1;
    } else {
      most = middle - 1;
    }
  }
  return largest;
}

int workers_left_out(const Spec& spec, const std::vector<Seat>& seats) {
  return workers_of(spec) - static_cast<int>(std::count_if(seats.begin(), seats.end(), [](const Seat& seat) {
           return seat.replica.role == Role::Worker;
         }));
}

int workers_left_out(const Experiment& experiment) {
  return workers_of(experiment.spec()) -
         static_cast<int>(std::count_if(experiment.replicas.begin(), experiment.replicas.end(), [](const Replica& replica) {
           return replica.id.role == Role::Worker && !replica.lost;
         }));
}

std::string size_text(const Spec& spec, int left_out) {
  if (left_out == 0) return "";
  return fmt::format("{} of {} workers", spec.most_workers() - left_out, spec.most_workers());
}

bool is_left_out(const Experiment& experiment, const ReplicaId& replica) {
  if (!experiment.spec().elastic || replica.role != Role::Worker || experiment.replicas.empty()) return false;
  const bool known = replica.index >= 1 && replica.index <= static_cast<uint32_t>(workers_of(experiment.spec()));
  return known && std::none_of(experiment.replicas.begin(), experiment.replicas.end(), [&](const Replica& one) {
           return one.id == replica;
         });
}

TimeMs grows_from(const Spec& spec, TimeMs now) {
  if (!spec.elastic || spec.elastic->grow_after_ms == Elastic::kNever) return 0;
  return std::max<TimeMs>(now + spec.elastic->grow_after_ms, 1);
}

bool may_grow(const Experiment& experiment) {
  const auto& elastic = experiment.spec().elastic;
  if (!elastic || elastic->grow_after_ms == Elastic::kNever) return false;
  if (experiment.over || experiment.outcome || experiment.phase != Phase::Go || !all_started(experiment)) return false;
  // What has done its part would do it again.
  const bool someone_is_done = std::any_of(experiment.replicas.begin(), experiment.replicas.end(), [](const Replica& replica) {
    return !is_build(replica) && replica.end == State::Finished;
  });
  return !someone_is_done && workers_left_out(experiment) > 0;
}

std::optional<std::vector<Seat>> larger_gang(const Model& model, const Experiment& experiment, FreeHosts& free, TimeMs now) {
  if (somebody_comes_back(model, experiment)) return std::nullopt;
  std::vector<Seat> own;
  for (const Replica& replica : experiment.replicas) {
    if (holds_seat(experiment, replica)) own.push_back(replica.seat);
  }
  for (const Seat& seat : own) free.give(seat);
  Choice choice = choice_of(model, experiment);
  choice.now = now;
  auto seats = fit_largest(experiment.id, experiment.spec(), free, choice);
  const bool larger = seats && workers_left_out(experiment.spec(), *seats) < workers_left_out(experiment);
  if (larger && somebody_fits(model, free, now)) seats.reset();
  for (const Seat& seat : own) free.take(seat);
  if (!larger) return std::nullopt;
  return seats;
}

}  // namespace dtrain::daemon
