#include "daemon/placement_elastic.h"

#include <fmt/format.h>

#include <algorithm>

namespace dtrain::daemon {

namespace {

void set_workers(Spec& spec, int count) {
  for (RoleSpec& role : spec.roles) {
    if (role.role == Role::Worker) role.count = count;
  }
  std::erase_if(spec.roles, [](const RoleSpec& role) { return role.count == 0; });
}

// All that a place depends on.
Spec outline(const Spec& spec, int workers) {
  Spec gang;
  for (const RoleSpec& role : spec.roles) gang.roles.push_back({role.role, role.count, role.resources, {}, role.on_failure, role.per_host});
  gang.max_duration_ms = spec.max_duration_ms;
  gang.stop_grace_ms = spec.stop_grace_ms;
  gang.hard_cpus = spec.hard_cpus;
  gang.hard_memory = spec.hard_memory;
  set_workers(gang, workers);
  return gang;
}

int workers_of(const Spec& spec) {
  const RoleSpec* const role = spec.role(Role::Worker);
  return role == nullptr ? 0 : role->count;
}

bool is_worker(const Seat& seat) { return seat.replica.role == Role::Worker; }
bool is_worker(const Replica& replica) { return replica.id.role == Role::Worker; }

template <class Members>
int missing_of(const Spec& spec, const Members& members) {
  return workers_of(spec) - static_cast<int>(std::count_if(members.begin(), members.end(), [](const auto& one) { return is_worker(one); }));
}

}  // namespace

LeastGang::LeastGang(const Spec& spec) : whole_(spec) {
  if (spec.elastic) smaller_ = outline(spec, spec.elastic->least_of_role);
}

std::optional<std::vector<Seat>> fit_largest(const ExperimentId& id, const Spec& spec, const FreeHosts& hosts,
                                             const Choice& choice) {
  if (auto seats = fit(id, spec, hosts, choice)) return seats;
  if (!spec.elastic || choice.whole) return std::nullopt;
  std::optional<std::vector<Seat>> largest;
  // With what has room, less has: by halves, and the least of all is asked for last.
  int least = spec.elastic->least_of_role, most = workers_of(spec) - 1;
  while (least <= most) {
    const int middle = least + (most - least) / 2;
    if (auto seats = fit(id, outline(spec, middle), hosts, choice)) {
      largest = std::move(seats);
      least = middle + 1;
    } else {
      most = middle - 1;
    }
  }
  return largest;
}

int missing_workers(const Spec& spec, const std::vector<Seat>& seats) { return missing_of(spec, seats); }

int missing_workers(const Experiment& experiment) {
  return experiment.spec().elastic && !experiment.replicas.empty() ? missing_of(experiment.spec(), experiment.replicas) : 0;
}

bool is_missing(const Experiment& experiment, const ReplicaId& replica) {
  if (missing_workers(experiment) == 0 || replica.role != Role::Worker) return false;
  const auto most = static_cast<uint32_t>(workers_of(experiment.spec()));
  return replica.index <= most && replica.index > most - static_cast<uint32_t>(missing_workers(experiment));
}

std::string workers_text(const Spec& spec, int missing) {
  if (missing == 0) return "";
  return fmt::format("{} of {} workers", spec.most_workers() - missing, spec.most_workers());
}

}  // namespace dtrain::daemon
