#include "daemon/summary.h"

#include <algorithm>
#include <array>

#include "daemon/dependencies.h"
#include "daemon/describe.h"
#include "daemon/waits_for.h"

namespace dtrain::daemon {

namespace {

// Past this many members, or ids of them, the others' are not listed: they go into one message.
constexpr size_t kListedMembersMax = 1'000;
constexpr size_t kListedIdsMax = 20'000;

size_t listed_members(const Submission& submission) {
  int replicas = submission.spec.replica_count();
  for (const Spec& shape : submission.shapes) replicas = std::max(replicas, shape.replica_count());
  const size_t ids_of_one = static_cast<size_t>(replicas) + 2;   // itself, and its build
  return std::clamp<size_t>(kListedIdsMax / ids_of_one, 1, kListedMembersMax);
}

}  // namespace

std::vector<const Experiment*> members_of(const Scheduler::Known& known, const ExperimentId& id) {
  std::vector<const Experiment*> members;
  for (const Experiment* experiment : known.experiments) {
    if (id.member == 0 || experiment->id == id) members.push_back(experiment);
  }
  return members;
}

std::vector<const Experiment*> shown_members(const Scheduler::Known& known, size_t most) {
  if (known.experiments.size() <= most) return known.experiments;
  std::array<std::vector<const Experiment*>, 4> by_rank;
  for (const Experiment* member : known.experiments) {
    const State state = state_of(*member);
    const bool ended_badly = state == State::Failed || state == State::Killed;
    const size_t rank = ended_badly ? 1 : state == State::Finished ? 3 : member->attempt == 0 ? 2 : 0;
    if (by_rank[rank].size() < most) by_rank[rank].push_back(member);
  }
  std::vector<const Experiment*> shown;
  for (const auto& members : by_rank) {
    const size_t room = std::min(most - shown.size(), members.size());
    shown.insert(shown.end(), members.begin(), members.begin() + static_cast<std::ptrdiff_t>(room));
  }
  std::sort(shown.begin(), shown.end(), [](const auto* a, const auto* b) { return a->id < b->id; });
  return shown;
}

Status check_exists(const Scheduler::Known& known, const IdPattern& pattern) {
  const Spec& spec = known.submission->spec;
  const uint32_t number = known.submission->number;
  const uint64_t members = spec.is_set() ? spec.member_count() : 0;
  if (pattern.experiment.member > members) {
    return Error{Code::NotFound,
                 members == 0 ? fmt::format("experiment {} is not a set, it has no member {}", number,
                                            pattern.experiment.member)
                              : fmt::format("set {} has members {}.1 to {}.{}", number, number, number,
                                            members),
                 fmt::format("`dtrain status {}` shows it", number)};
  }
  if (!pattern.role || (pattern.role == Role::Build && spec.has_build())) return ok();
  std::vector<std::string> names;
  const ExperimentId whole{number, 0};
  const auto look_at = [&](const Spec& shape) {
    for (const ReplicaId& replica : replica_ids(whole, shape)) {
      const IdPattern here{whole, pattern.role, pattern.index};
      if (here.matches(replica)) return true;
      std::string name = to_string(replica).substr(to_string(whole).size() + 1);
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
    }
    return false;
  };
  const auto& shapes = known.submission->shapes;
  if (pattern.experiment.member != 0 || shapes.empty()) {
    if (look_at(known.submission->spec_of(pattern.experiment.member))) return ok();
  } else if (std::any_of(shapes.begin(), shapes.end(), look_at)) {
    return ok();
  }
  return Error{Code::NotFound, fmt::format("experiment {} has no {}; it has {}", number,
                                           to_string(pattern), fmt::join(names, ", ")),
               ""};
}

std::vector<std::string> watched_ids(const Scheduler::Known& known, const IdPattern& pattern) {
  const Spec& spec = known.submission->spec;
  const uint32_t number = known.submission->number;
  std::vector<std::string> ids;
  if (!pattern.role) ids.push_back(to_string(pattern.experiment));
  const auto add = [&](const ExperimentId& id) {
    if (id.member != 0 && !pattern.role && id != pattern.experiment) ids.push_back(to_string(id));
    for (const ReplicaId& replica : replica_ids(id, known.submission->spec_of(id.member))) {
      if (pattern.matches(replica)) ids.push_back(to_string(replica));
    }
    const ReplicaId build{id, Role::Build, 0};   // how many there are is known once it is placed
    if (spec.has_build() && pattern.matches(build)) ids.push_back(to_string(build));
  };
  const uint64_t members = spec.is_set() ? spec.member_count() : 0;
  if (members == 0) {
    add({number, 0});
  } else if (pattern.experiment.member != 0) {
    add(pattern.experiment);
  } else {
    if (known.submission->has_shared()) add({number, 0});
    const uint64_t first = members - std::min<uint64_t>(members, listed_members(*known.submission)) + 1;
    for (uint64_t member = first; member <= members; ++member) {
      add({number, static_cast<uint32_t>(member)});
    }
  }
  return ids;
}

pb::ExperimentInfo summary_of(const Scheduler::Known& known, const ExperimentId& id,
                              const Model& model, TimeMs now) {
  if (known.submission->spec.is_set() && id.member == 0) {
    std::vector<const Experiment*> members = members_of(known, id);
    pb::ExperimentInfo info = describe_set(*known.submission, members);
    const bool ends = known.shared != nullptr && !known.shared->over;
    if (const auto state = parse_state(info.state()); ends && state && is_terminal(*state)) {
      info.set_state(std::string(to_string(State::Stopping)));
      info.set_finished_unix_ms(0);
    }
    for (const Experiment* member : members) {
      if (can_be_stopped(model, *member)) continue;
      const std::string text = waits_for(*member, model, now);
      if (!text.empty()) info.set_waits_for(fmt::format("{}: {}", to_string(member->id), text));
      if (!text.empty()) break;
    }
    const bool awaits = std::any_of(members.begin(), members.end(), [](const Experiment* member) { return member->awaits; });
    const std::string whom = awaits ? awaited_text(model, known.submission->spec) : "";
    if (!whom.empty()) info.set_reason(fmt::format("{}; {}", info.reason(), whom));
    return info;
  }
  const auto found = members_of(known, id);
  return describe(found.empty() ? first_state(known.submission, id.member) : *found.front(), model, now);
}

}  // namespace dtrain::daemon
