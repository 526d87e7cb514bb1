#include "daemon/outgoing_messages.h"

#include <set>

#include "daemon/record.h"

namespace dtrain::daemon {

namespace {

pb::HeldReplica held_message(const HeldReplicaFact& fact) {
  pb::HeldReplica message;
  message.set_replica(to_string(fact.replica));
  message.set_attempt(fact.attempt);
  return message;
}

std::set<Role> roles_on(const HostId& host, const Experiment& experiment) {
  std::set<Role> roles;
  for (const Replica& replica : experiment.replicas) {
    if (!is_build(replica) && replica.seat.host == host) roles.insert(replica.id.role);
  }
  return roles;
}

}  // namespace

pb::StateEvent to_message(const StateChange& change, uint64_t time_unix_ms) {
  pb::StateEvent event;
  event.set_id(change.replica ? to_string(*change.replica) : to_string(change.experiment));
  event.set_state(std::string(to_string(change.state)));
  event.set_reason(change.reason);
  event.set_exit_code(change.exit_code.value_or(0));
  event.set_has_exit_code(change.exit_code.has_value());
  event.set_time_unix_ms(time_unix_ms);
  event.set_attempt(change.attempt);
  if (change.printer) event.set_printer(to_string(*change.printer));
  return event;
}

pb::Start to_message(const SendStart& start) {
  pb::Start message;
  message.set_experiment(to_string(start.id.experiment));
  message.set_attempt(start.id.attempt);
  message.set_of_builds(start.id.of_builds);
  return message;
}

pb::Stop to_message(const SendStop& stop) {
  pb::Stop message;
  message.set_experiment(to_string(stop.experiment));
  for (const auto& fact : stop.replicas) *message.add_replicas() = held_message(fact);
  message.set_grace_ms(static_cast<uint64_t>(stop.grace_ms));
  message.set_reason(stop.reason);
  return message;
}

pb::Forget to_message(const SendForget& forget) {
  pb::Forget message;
  message.set_experiment(to_string(forget.experiment));
  for (const auto& fact : forget.replicas) *message.add_replicas() = held_message(fact);
  return message;
}

pb::Launch to_message(const SendLaunch& launch, const Experiment& experiment,
                      const SubmissionExtras* extras, const std::string& output_dir, const std::string& after_dir,
                      const OutputMark& output_mark, uint64_t spool_limit_bytes) {
  pb::Launch message;
  message.set_experiment(to_string(launch.id.experiment));
  message.set_attempt(launch.id.attempt);
  message.set_spec_yaml(experiment.submission->spec_yaml);
  message.set_member(launch.id.experiment.member);
  message.set_snapshot(experiment.submission->snapshot);
  // Builds know nothing of the gang, and it nothing of them.
  for (const Replica& replica : experiment.replicas) {
    if (is_build(replica) == launch.id.of_builds) *message.add_gang() = to_message(replica.seat);
    if (replica.id == launch.replicas.front()) {
      message.set_lease_ms(static_cast<uint64_t>(replica.lease_ms));
    }
  }
  for (const ReplicaId& replica : launch.replicas) message.add_replicas(to_string(replica));
  if (launch.id.of_builds) {
    for (const Role role : roles_on(launch.host, experiment)) message.add_roles(std::string(to_string(role)));
  }
  message.set_output_dir(output_dir);
  message.set_after_dir(after_dir);
  message.set_output_mark(output_mark.file.string());
  message.set_output_mark_text(output_mark.text);
  message.set_spool_limit_bytes(spool_limit_bytes);
  message.set_submission(experiment.submission->submission_id);
  if (extras != nullptr) {
    message.mutable_secrets()->insert(extras->secrets.begin(), extras->secrets.end());
    message.mutable_user_env()->insert(extras->user_env.begin(), extras->user_env.end());
    if (extras->rebuild) message.set_rebuild(experiment.submission->submission_id);
  }
  return message;
}

}  // namespace dtrain::daemon
