#include "cli/kubeflow_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/kubeflow_names.h"
#include "cli/table.h"
#include "schema/spec.h"
#include "schema/states.h"

namespace dtrain::cli {

namespace {

// A pod is there or is awaited; what else a job goes through says nothing of it.
std::string_view pod_phase(std::string_view word) {
  const std::string_view state = kubeflow_state(word);
  return state == "Created" || state == "Restarting" || state == "Suspended" ? "Pending" : state;
}

}  // namespace

std::string_view kubeflow_state(std::string_view word) {
  const auto state = parse_state(word);
  if (!state) return "";
  switch (*state) {
    case State::Created:
    case State::Pending:
    case State::Building:
    case State::Starting:
      return "Created";
    case State::Running:
    case State::Stopping:
      return "Running";
    case State::Restarting:
      return "Restarting";
    case State::Suspended:
      return "Suspended";
    case State::Finished:
      return "Succeeded";
    case State::Failed:
    case State::Killed:
    case State::Lost:
      return "Failed";
  }
  return "";
}

// The coarser unit alone once the finer one says little.
std::string kubernetes_age(uint64_t age_ms) {
  constexpr uint64_t kMinute = 60, kHour = 60 * kMinute, kDay = 24 * kHour, kYear = 365 * kDay;
  const uint64_t s = age_ms / 1000;
  const auto both = [s](uint64_t large, char large_name, uint64_t small, char small_name, bool with_small) {
    const uint64_t rest = s % large / small;
    return with_small && rest > 0 ? fmt::format("{}{}{}{}", s / large, large_name, rest, small_name) : fmt::format("{}{}", s / large, large_name);
  };
  if (s < 2 * kMinute) return fmt::format("{}s", s);
  if (s < 3 * kHour) return both(kMinute, 'm', 1, 's', s < 10 * kMinute);
  if (s < 2 * kDay) return both(kHour, 'h', kMinute, 'm', s < 8 * kHour);
  if (s < 2 * kYear) return both(kDay, 'd', kHour, 'h', s < 8 * kDay);
  return both(kYear, 'y', kDay, 'd', s < 8 * kYear);
}

std::string render_kubeflow(const pb::ListReply& reply, const View& view) {
  Table table;
  table.columns = {{"NAME", 20, 0, true}, {"STATE", 10}, {"AGE", 6}};
  table.gap = 3;
  for (const pb::ExperimentInfo& info : reply.experiments()) {
    const uint64_t age_ms = view.now_unix_ms - std::min(view.now_unix_ms, info.submitted_unix_ms());
    const bool unreadable = info.submitted_unix_ms() == 0;
    table.rows.push_back({{kubeflow_name(info)},
                          {std::string(kubeflow_state(info.state())), ink_of_state(info.state())},
                          {unreadable ? "" : kubernetes_age(age_ms)}});
  }
  return render(table, view.screen);
}

std::string render_kubeflow_replicas(const pb::ShowReply& reply, const IdPattern& pattern, const View& view) {
  const auto spec = parse_spec(reply.spec_yaml(), {});
  if (!spec.ok()) return "";   // of a newer dtrain
  Table table;
  table.columns = {{"NAME", 20, 0, true}, {"STATUS", 10}, {"AGE", 6}, {"REPLICA", 11}};
  table.gap = 3;
  for (const pb::ReplicaInfo& replica : reply.replicas()) {
    const auto id = parse_replica_id(replica.id());
    const std::string name = id.ok() && pattern.matches(*id) ? kubeflow_replica(*spec, *id) : "";
    if (name.empty()) continue;
    const uint64_t age_ms = view.now_unix_ms - std::min(view.now_unix_ms, replica.started_unix_ms());
    table.rows.push_back({{fmt::format("{}-{}", kubeflow_name(reply.experiment()), name)},
                          {std::string(pod_phase(replica.state())), ink_of_state(replica.state())},
                          {replica.started_unix_ms() == 0 ? "" : kubernetes_age(age_ms)},
                          {replica.id()}});
  }
  return table.rows.empty() ? "" : render(table, view.screen);
}

}  // namespace dtrain::cli
