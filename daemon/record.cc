#include "daemon/record.h"

#include <algorithm>
#include <cmath>

namespace dtrain::daemon {

namespace {

// No clock of a host gets there, and sums of a few of them don't overflow.
constexpr int64_t kMomentMsMax = int64_t{1} << 53;

Error damaged(const ExperimentId& id, std::string_view why) {
  return {Code::DataLoss,
          fmt::format("the stored facts of experiment {} make no sense: {}", to_string(id), why),
          "restore DTRAIN_HOME/db from a backup"};
}

// A stored moment: the boot clock when it was stored, so that a later boot can tell it is stale.
TimeMs restore_moment(uint64_t stored_ms, uint64_t stored_at_ms, bool same_boot, TimeMs now) {
  if (stored_ms == 0) return 0;
  if (same_boot) return static_cast<TimeMs>(stored_ms);
  // After a reboot: as far from now as it was from the moment of storing.
  return now + static_cast<TimeMs>(stored_ms) - static_cast<TimeMs>(stored_at_ms);
}

pb::ReplicaRecord to_replica_record(const Replica& replica) {
  pb::ReplicaRecord record;
  record.set_id(to_string(replica.id));
  record.set_attempt(replica.attempt);
  *record.mutable_seat() = to_message(replica.seat);
  record.set_progress(static_cast<uint32_t>(replica.progress));
  if (replica.exit) *record.mutable_exit() = to_message(*replica.exit);
  record.set_started_unix_ms(replica.started_unix_ms);
  record.set_pid(replica.pid);
  if (replica.end) record.set_end_state(std::string(to_string(*replica.end)));
  record.set_reason(replica.reason);
  record.set_lost(replica.lost);
  record.set_lease_ms(static_cast<uint64_t>(replica.lease_ms));
  return record;
}

Result<Replica> from_replica_record(const pb::ReplicaRecord& record) {
  Replica replica;
  TRY(replica.id, parse_replica_id(record.id()));
  TRY(replica.seat, seat_from_message(record.seat()));
  replica.attempt = record.attempt();
  if (record.progress() > static_cast<uint32_t>(Progress::Released)) {
    return Error{Code::DataLoss, fmt::format("replica {} has unknown progress {}", record.id(),
                                             record.progress()),
                 "the database was written by a newer dtrain; start that version"};
  }
  replica.progress = static_cast<Progress>(record.progress());
  if (record.has_exit()) replica.exit = exit_from_message(record.exit());
  replica.started_unix_ms = record.started_unix_ms();
  replica.pid = record.pid();
  if (!record.end_state().empty()) {
    replica.end = parse_state(record.end_state());
    if (!replica.end || !is_terminal(*replica.end)) {
      return Error{
          Code::DataLoss,
          fmt::format("replica {} has an unknown end '{}'", record.id(), record.end_state()),
          "the database was written by a newer dtrain; start that version"};
    }
  }
  replica.reason = record.reason();
  replica.lost = record.lost();
  replica.lease_ms = static_cast<int64_t>(std::min(record.lease_ms(), uint64_t{kMomentMsMax}));
  return replica;
}

Status check_moments(const pb::ExperimentRecord& record, const ExperimentId& id) {
  for (const uint64_t ms : {record.stored_at_ms(), record.run_since_ms(), record.not_before_ms(), record.grows_from_ms(),
                            record.outcome().at_ms()}) {
    // Negative, in two's complement: before the present boot.
    const auto moment = static_cast<int64_t>(ms);
    if (moment > kMomentMsMax || moment < -kMomentMsMax) {
      return damaged(id, "a moment past all time");
    }
  }
  return ok();
}

// What the rest of the daemon takes for granted.
Status check_facts(const Experiment& experiment) {
  if (experiment.over && !experiment.outcome)
    return damaged(experiment.id, "it is over without an end");
  if (experiment.costs && std::any_of(experiment.costs->begin(), experiment.costs->end(), [](double cost) { return std::isnan(cost); }))
    return damaged(experiment.id, "its metric was no number");
  if (experiment.suspended && !experiment.outcome && experiment.phase != Phase::None && experiment.phase != Phase::Ending)
    return damaged(experiment.id, "it is suspended and has its place");
  if (experiment.failure) {
    const std::optional<ReplicaId>& cause = experiment.failure->cause;
    const bool known = !cause || std::ranges::any_of(experiment.replicas, [&](const Replica& one) { return one.id == *cause; });
    if (experiment.outcome || experiment.phase != Phase::Ending || !known) return damaged(experiment.id, "it ends with a failure and does not end");
  }
  if (experiment.replicas.empty()) {
    return experiment.phase == Phase::None
               ? ok()
               : Status(damaged(experiment.id, "placed without replicas"));
  }
  for (const Replica& replica : experiment.replicas) {
    const bool known = is_build(replica) ? experiment.spec().has_build()
                                         : experiment.spec().role(replica.id.role) != nullptr;
    if (replica.id.experiment != experiment.id || !known) {
      return damaged(experiment.id,
                     fmt::format("{} is none of its replicas", to_string(replica.id)));
    }
  }
  return ok();
}

}  // namespace

pb::SeatInfo to_message(const Seat& seat) {
  pb::SeatInfo message;
  message.set_replica(to_string(seat.replica));
  message.set_host_id(seat.host.hex);
  message.set_host_name(seat.host_name);
  message.set_address(seat.address);
  message.set_port(static_cast<uint32_t>(seat.port));
  message.set_cpus(seat.cpus);
  message.set_memory_bytes(seat.memory_bytes);
  for (const int gpu : seat.gpus) message.add_gpus(static_cast<uint32_t>(gpu));
  message.set_rank(static_cast<uint32_t>(seat.rank));
  message.set_local_rank(static_cast<uint32_t>(seat.local_rank));
  return message;
}

Result<Seat> seat_from_message(const pb::SeatInfo& message) {
  Seat seat;
  TRY(seat.replica, parse_replica_id(message.replica()));
  seat.host.hex = message.host_id();
  seat.host_name = message.host_name();
  seat.address = message.address();
  seat.port = static_cast<int>(message.port());
  seat.cpus = message.cpus();
  seat.memory_bytes = message.memory_bytes();
  for (const uint32_t gpu : message.gpus()) seat.gpus.push_back(static_cast<int>(gpu));
  seat.rank = static_cast<int>(message.rank());
  seat.local_rank = static_cast<int>(message.local_rank());
  return seat;
}

pb::ExitStatus to_message(const Exit& exit) {
  pb::ExitStatus message;
  message.set_code(exit.code);
  message.set_signal(exit.signal);
  message.set_memory_kill(exit.memory_kill);
  message.set_lost_keeper(exit.lost_keeper);
  message.set_cause(exit.cause);
  message.set_time_unix_ms(exit.unix_ms);
  message.set_cpu_seconds(exit.cpu_seconds);
  message.set_memory_peak_bytes(exit.memory_peak_bytes);
  message.set_read_bytes(exit.read_bytes);
  message.set_written_bytes(exit.written_bytes);
  for (const auto& [rule, line] : exit.printed) {
    pb::PrintedLine& one = *message.add_printed();
    one.set_rule(rule);
    one.set_line(line);
  }
  message.set_ended_for_line(exit.ended_for_line);
  return message;
}

Exit exit_from_message(const pb::ExitStatus& message) {
  Exit exit;
  exit.code = message.code();
  exit.signal = message.signal();
  exit.memory_kill = message.memory_kill();
  exit.lost_keeper = message.lost_keeper();
  exit.cause = message.cause();
  exit.unix_ms = message.time_unix_ms();
  exit.cpu_seconds = message.cpu_seconds();
  exit.memory_peak_bytes = message.memory_peak_bytes();
  exit.read_bytes = message.read_bytes();
  exit.written_bytes = message.written_bytes();
  for (const auto& one : message.printed()) exit.printed.emplace_back(one.rule(), one.line());
  exit.ended_for_line = message.ended_for_line();
  return exit;
}

pb::ExperimentRecord to_record(const Experiment& experiment, TimeMs now,
                               const std::string& boot_id) {
  pb::ExperimentRecord record;
  record.set_attempt(experiment.attempt);
  record.set_build_attempt(experiment.build_attempt);
  record.set_phase(static_cast<uint32_t>(experiment.phase));
  record.set_stop_forced(experiment.stop_forced);   // the outcome says the rest
  if (experiment.outcome) {
    auto& outcome = *record.mutable_outcome();
    outcome.set_state(std::string(to_string(experiment.outcome->state)));
    outcome.set_exit_code(experiment.outcome->exit_code);
    if (experiment.outcome->cause) outcome.set_cause_replica(to_string(*experiment.outcome->cause));
    if (experiment.outcome->printer) outcome.set_printer(to_string(*experiment.outcome->printer));
    outcome.set_reason(experiment.outcome->reason);
    outcome.set_at_ms(static_cast<uint64_t>(experiment.outcome->at_ms));
    outcome.set_early(experiment.outcome->early);
    outcome.set_with_set(experiment.outcome->with_set);
  }
  for (const Replica& replica : experiment.replicas) {
    *record.add_replicas() = to_replica_record(replica);
  }
  record.set_suspended(experiment.suspended);
  record.set_held(experiment.held && experiment.attempt > 0);
  record.set_restarts_used(experiment.restarts_used);
  record.set_start_failures(experiment.start_failures);
  record.set_placed_after(experiment.placed_after);
  for (const HostId& host : experiment.excluded_hosts) record.add_excluded_hosts(host.hex);
  if (experiment.unfit_hosts) {
    for (const auto& [host, lack] : *experiment.unfit_hosts) {
      (*record.mutable_unfit_hosts())[host.hex] = lack;
    }
  }
  if (experiment.failure) {
    auto& failure = *record.mutable_failure();
    if (experiment.failure->cause) failure.set_replica(to_string(*experiment.failure->cause));
    failure.set_what(experiment.failure->what);
  }
  if (experiment.gave_way_to) record.set_gave_way_to(to_string(*experiment.gave_way_to));
  if (experiment.costs) record.mutable_costs()->Add(experiment.costs->begin(), experiment.costs->end());
  record.set_started_unix_ms(experiment.started_unix_ms);
  record.set_finished_unix_ms(experiment.finished_unix_ms);
  record.set_over(experiment.over);
  record.set_boot_id(boot_id);
  record.set_stored_at_ms(static_cast<uint64_t>(now));
  record.set_run_since_ms(static_cast<uint64_t>(experiment.run_since_ms));
  record.set_not_before_ms(static_cast<uint64_t>(std::max<TimeMs>(experiment.not_before_ms, 0)));
  record.set_grows_from_ms(static_cast<uint64_t>(std::max<TimeMs>(experiment.grows_from_ms, 0)));
  return record;
}

namespace {

Result<Experiment> read_record(const pb::ExperimentRecord& record, const ExperimentId& id,
                               std::shared_ptr<const Submission> submission, TimeMs now,
                               const std::string& boot_id) {
  TRY(check_moments(record, id));
  const bool same_boot = record.boot_id() == boot_id;
  const auto moment = [&](uint64_t stored_ms) {
    return restore_moment(stored_ms, record.stored_at_ms(), same_boot, now);
  };
  Experiment experiment;
  experiment.id = id;
  experiment.submission = std::move(submission);
  experiment.attempt = record.attempt();
  // Of a daemon that counted builds as attempts: numbers that it gave are not given again.
  experiment.build_attempt = record.has_build_attempt() ? record.build_attempt() : record.attempt();
  experiment.phase = static_cast<Phase>(
      std::min<uint32_t>(record.phase(), static_cast<uint32_t>(Phase::Building)));
  experiment.stop_forced = record.stop_forced();
  if (record.has_outcome()) {
    Outcome outcome;
    const auto state = parse_state(record.outcome().state());
    if (!state || !is_terminal(*state) || *state == State::Lost) {
      return Error{Code::DataLoss,
                   fmt::format("experiment {} has an unknown outcome '{}'", to_string(id),
                               record.outcome().state()),
                   "the database was written by a newer dtrain; start that version"};
    }
    outcome.state = *state;
    outcome.exit_code = record.outcome().exit_code();
    if (!record.outcome().cause_replica().empty()) {
      TRY(outcome.cause, parse_replica_id(record.outcome().cause_replica()));
    }
    if (!record.outcome().printer().empty()) {
      TRY(outcome.printer, parse_replica_id(record.outcome().printer()));
    }
    outcome.reason = record.outcome().reason();
    outcome.at_ms = moment(record.outcome().at_ms());
    outcome.early = record.outcome().early();
    outcome.with_set = record.outcome().with_set();
    experiment.outcome = std::move(outcome);
  }
  for (const auto& stored : record.replicas()) {
    TRY(auto replica, from_replica_record(stored));
    experiment.replicas.push_back(std::move(replica));
  }
  experiment.suspended = record.suspended();
  experiment.held = record.held();
  experiment.restarts_used = record.restarts_used();
  experiment.start_failures = record.start_failures();
  experiment.placed_after = record.placed_after();
  for (const auto& host : record.excluded_hosts()) experiment.excluded_hosts.push_back({host});
  if (record.unfit_hosts_size() > 0) {
    std::map<HostId, std::string> unfit;
    for (const auto& [host, lack] : record.unfit_hosts()) unfit[{host}] = lack;
    experiment.unfit_hosts = std::move(unfit);
  }
  if (record.has_failure()) {
    Failure failure;
    if (!record.failure().replica().empty()) {
      TRY(failure.cause, parse_replica_id(record.failure().replica()));
    }
    failure.what = record.failure().what();
    experiment.failure = std::move(failure);
  }
  if (!record.gave_way_to().empty()) {
    TRY(experiment.gave_way_to, parse_experiment_id(record.gave_way_to()));
  }
  if (record.costs_size() > 0) experiment.costs = std::vector<double>(record.costs().begin(), record.costs().end());
  experiment.started_unix_ms = record.started_unix_ms();
  experiment.finished_unix_ms = record.finished_unix_ms();
  experiment.over = record.over();
  experiment.run_since_ms = moment(record.run_since_ms());
  // At least 1: what is less is never due.
  if (record.grows_from_ms() != 0) experiment.grows_from_ms = std::max<TimeMs>(moment(record.grows_from_ms()), 1);
  if (record.not_before_ms() != 0) {
    experiment.not_before_ms = std::max<TimeMs>(moment(record.not_before_ms()), 1);
  }
  TRY(check_facts(experiment));
  return experiment;
}

}  // namespace

Result<Experiment> from_record(const pb::ExperimentRecord& record, const ExperimentId& id,
                               std::shared_ptr<const Submission> submission, TimeMs now,
                               const std::string& boot_id) {
  auto experiment = read_record(record, id, std::move(submission), now, boot_id);
  // An ID that is none is nobody's bad input here.
  if (!experiment.ok() && experiment.error().code != Code::DataLoss) return damaged(id, experiment.error().message);
  return experiment;
}

}  // namespace dtrain::daemon
