#include "daemon/describe.h"

#include <fmt/format.h>

#include <algorithm>

#include "daemon/placement.h"
#include "daemon/record.h"
#include "daemon/wait_reason.h"
#include "daemon/waits_for.h"
#include "schema/expand.h"

namespace dtrain::daemon {

namespace {

pb::ExperimentInfo describe_submission(const Submission& submission) {
  pb::ExperimentInfo info;
  info.set_project(submission.spec.project);
  info.set_name(submission.spec.name);
  info.set_note(submission.spec.note);
  info.set_user(submission.user);
  info.set_framework(std::string(to_string(submission.spec.framework)));
  info.set_submitted_unix_ms(submission.submitted_unix_ms);
  info.set_project_dir(submission.project_dir);
  return info;
}

// Of an elastic one as many as it has.
int replica_count(const Experiment& experiment) {
  const int most = experiment.spec().replica_count();
  if (experiment.replicas.empty()) return most;
  return static_cast<int>(std::count_if(experiment.replicas.begin(), experiment.replicas.end(),
                                        [](const Replica& replica) { return !is_build(replica); }));
}

// Those whose failure is ignored, and how they ended.
std::string went_on_without(const Experiment& experiment) {
  constexpr size_t kNamedMax = 3;
  std::string text;
  size_t count = 0;
  for (const Replica& replica : experiment.replicas) {
    if (is_build(replica) || !replica.end || (*replica.end != State::Failed && *replica.end != State::Lost)) continue;
    if (++count > kNamedMax) continue;
    const std::string how = !replica.reason.empty() || !replica.exit ? replica.reason : replica.exit->cause;
    text += fmt::format("{}{}{}", text.empty() ? "" : "; ", to_string(replica.id), how.empty() ? "" : ": " + how);
  }
  if (count == 0) return "";
  return fmt::format("{} without {}{}", experiment.outcome ? "went on" : "goes on", text,
                     count > kNamedMax ? fmt::format("; and {} more", count - kNamedMax) : "");
}

uint64_t finished_unix_ms(const Replica& replica) { return replica.exit ? replica.exit->unix_ms : 0; }

}  // namespace

std::string reason_of(const Experiment& experiment, const Model& model, TimeMs now) {
  std::string reason = experiment.outcome ? experiment.outcome->reason : wait_reason(model, experiment.id, now);
  const bool goes_well = !experiment.outcome || experiment.outcome->state == State::Finished;
  return reason.empty() && goes_well ? went_on_without(experiment) : reason;
}

pb::ExperimentInfo describe(const Experiment& experiment, const Model& model, TimeMs now) {
  const Submission& submission = *experiment.submission;
  pb::ExperimentInfo info = describe_submission(submission);
  info.set_id(to_string(experiment.id));
  info.set_replicas(static_cast<uint32_t>(replica_count(experiment)));
  info.set_state(std::string(to_string(state_of(experiment))));
  info.set_reason(reason_of(experiment, model, now));
  if (!can_be_stopped(model, experiment)) info.set_waits_for(waits_for(experiment, model, now));
  if (experiment.outcome) {
    info.set_exit_code(experiment.outcome->exit_code);
    info.set_ended_early(experiment.outcome->early);
    if (experiment.outcome->printer) info.set_printer(to_string(*experiment.outcome->printer));
  }
  info.set_started_unix_ms(experiment.started_unix_ms);
  // While others run on, or another attempt follows, an exit is no end.
  if (experiment.over) info.set_finished_unix_ms(experiment.finished_unix_ms);
  // Of the gang or the newest of its replicas: the builds have attempts of their own.
  uint32_t attempt = experiment.replicas.empty() ? experiment.attempt : 0;
  for (const Replica& replica : experiment.replicas) {
    if (!is_build(replica)) attempt = std::max(attempt, replica.attempt);
  }
  info.set_attempt(attempt);
  for (const auto& [name, value] : member_parameters(submission.spec, experiment.id.member)) {
    (*info.mutable_parameters())[name] = value;
  }
  return info;
}

pb::ExperimentInfo describe_set(const Submission& submission,
                                const std::vector<const Experiment*>& members) {
  pb::ExperimentInfo info = describe_submission(submission);
  info.set_id(to_string(ExperimentId{submission.number, 0}));
  info.set_replicas(static_cast<uint32_t>(submission.spec_of(1).replica_count()));
  info.set_state(std::string(to_string(set_state(members))));
  uint32_t finished = 0, early = 0, failed = 0, killed = 0, running = 0;
  int exit_code = 0;
  uint64_t started = 0, ended = 0;
  for (const Experiment* member : members) {
    const State state = state_of(*member);
    finished += state == State::Finished;
    early += state == State::Finished && member->outcome->early;
    failed += state == State::Failed || state == State::Killed;
    killed += state == State::Killed;
    const bool waits = state == State::Suspended || member->held || member->awaits;
    running += !is_terminal(state) && !waits && !member->replicas.empty();
    const int own = member->outcome ? member->outcome->exit_code : 0;   // a failure says more than being killed, perhaps for it
    if (own != 0 && (exit_code == 0 || (exit_code == kKilledCode && member->outcome->state == State::Failed))) exit_code = own;
    if (member->started_unix_ms != 0) {
      started = started == 0 ? member->started_unix_ms : std::min(started, member->started_unix_ms);
    }
    ended = std::max(ended, member->finished_unix_ms);
  }
  info.set_members(static_cast<uint32_t>(members.size()));
  info.set_members_finished(finished);
  info.set_members_ended_early(early);
  info.set_members_failed(failed);
  info.set_members_killed(killed);
  info.set_members_running(running);
  info.set_exit_code(exit_code);
  info.set_started_unix_ms(started);
  const int most = submission.spec.search.max_failed;
  const bool over = finished + failed == members.size();
  if (over) info.set_finished_unix_ms(ended);
  info.set_reason(fmt::format("{} of {} finished", finished, members.size()) +
                  (early > 0 ? fmt::format(", {} of them early", early) : "") +
                  (failed > killed ? fmt::format(", {} failed", failed - killed) : "") +
                  (killed > 0 ? fmt::format(", {} killed", killed) : "") +
                  (most != Search::kNoLimit && failed - killed > static_cast<uint32_t>(most)
                       ? fmt::format("; more have failed than max-failed: {} allows", most)
                       : ""));
  if (info.state() == to_string(State::Suspended)) {
    info.set_reason(fmt::format("{}; {}", info.reason(), suspended_text({submission.number, 0})));
  }
  return info;
}

pb::ReplicaInfo describe(const Experiment& experiment, const Replica& replica,
                         const std::map<HostId, Host>& hosts) {
  pb::ReplicaInfo info;
  info.set_id(to_string(replica.id));
  info.set_state(std::string(to_string(state_of(experiment, replica))));
  info.set_reason(replica.reason);
  info.set_exited(replica.exit.has_value());
  if (replica.exit) {
    info.set_exit_code(replica.exit->code);
    info.set_cpu_seconds(replica.exit->cpu_seconds);
    info.set_memory_peak_bytes(replica.exit->memory_peak_bytes);
    info.set_read_bytes(replica.exit->read_bytes);
    info.set_written_bytes(replica.exit->written_bytes);
    if (info.reason().empty()) info.set_reason(replica.exit->cause);
  }
  if (!replica.seat.host.hex.empty()) {
    *info.mutable_seat() = to_message(replica.seat);
    const auto host = hosts.find(replica.seat.host);
    if (host != hosts.end()) info.mutable_seat()->set_host_name(host->second.name);
  }
  info.set_attempt(replica.attempt);
  info.set_pid(replica.pid);
  info.set_started_unix_ms(replica.started_unix_ms);
  info.set_finished_unix_ms(finished_unix_ms(replica));
  return info;
}

pb::HostInfo describe(const Host& host, const Model& model, TimeMs now) {
  const FreeHost free = free_host(model, host);
  pb::HostInfo info;
  info.set_id(host.id.hex);
  info.set_name(host.name);
  info.set_address(host.address);
  info.set_connected(host.connected);
  info.set_drained(free.drained);
  info.set_revoked(model.revoked.contains(host.id));
  for (const std::string& label : host.labels) info.add_labels(label);
  info.set_port_first(static_cast<uint32_t>(host.port_first));
  info.set_port_last(static_cast<uint32_t>(host.port_last));
  info.set_cpus(host.cpus);
  info.set_cpus_free(std::max(free.cpus, 0.0));
  info.set_memory_bytes(host.memory_bytes);
  info.set_memory_free_bytes(static_cast<uint64_t>(std::max<int64_t>(free.memory_bytes, 0)));
  for (const Gpu& gpu : host.gpus) {
    pb::GpuInfo& message = *info.add_gpus();
    message.set_index(static_cast<uint32_t>(gpu.index));
    message.set_name(gpu.name);
    message.set_busy(gpu.busy);
    if (gpu.numa_node >= 0) message.set_numa_node(static_cast<uint32_t>(gpu.numa_node));
  }
  info.set_gpus_free(static_cast<uint32_t>(free.gpus.size()));
  static const std::set<ExperimentId> none;
  uint32_t replicas = 0;
  const auto seated = model.seated.find(host.id);
  for (const ExperimentId& id : seated == model.seated.end() ? none : seated->second) {
    for (const Replica& replica : model.experiments.at(id).replicas) {
      replicas += replica.seat.host == host.id && replica.progress != Progress::Released;
    }
  }
  info.set_replicas(replicas);
  info.set_last_contact_ms(static_cast<uint64_t>(std::max<TimeMs>(now - host.last_contact_ms, 0)));
  return info;
}

}  // namespace dtrain::daemon
