// From a place to RUNNING, in two phases: every host prepares, and only when all have does anything
// start. Before that the builds run, if there are any, each as soon as its host has prepared it.
// Building, Placed and Go are durable before the messages that follow from them, and both are safe to
// repeat: a runner that says Hello gets again whatever it may have missed.
#include <algorithm>
#include <map>

#include "daemon/lifecycle_turn.h"
#include "daemon/failure_rules.h"
#include "daemon/growth.h"
#include "daemon/placement_elastic.h"
#include "daemon/preemption.h"
#include "daemon/quota.h"

namespace dtrain::daemon {

namespace {

// Nothing of it is anywhere yet.
void begin_attempt(Turn& turn, const Experiment& experiment, Replica& replica) {
  replica.attempt = is_build(replica) ? experiment.build_attempt : experiment.attempt;
  replica.progress = Progress::None;
  replica.lost = false;
  replica.exit.reset();
  replica.end.reset();
  replica.reason.clear();
  replica.started_unix_ms = 0;
  replica.pid = 0;
  replica.stop_sent = false;
  replica.leaves = false;
  const Host* host = turn.host(replica.seat.host);
  const int64_t lease_ms = lease_ms_of(experiment.spec(), turn.policy);
  const bool elsewhere = host != nullptr && !host->same_machine;
  replica.lease_ms = !elsewhere ? 0 : lease_ms == 0 && is_build(replica) ? turn.policy.lease_ms : lease_ms;
}

// The hosts of a gang's launch, each once, in the order of its replicas.
std::vector<HostId> hosts_of(const Experiment& experiment) {
  std::vector<HostId> hosts;
  for (const Replica& replica : experiment.replicas) {
    if (std::find(hosts.begin(), hosts.end(), replica.seat.host) == hosts.end()) {
      hosts.push_back(replica.seat.host);
    }
  }
  return hosts;
}

// The replicas a host's message about a launch concerns, if they are not further than `most`.
// By their place in the experiment, which is not touched yet: it may concern none.
std::vector<size_t> of_launch(const Model& model, const LaunchId& launch, const HostId& host, Progress most) {
  std::vector<size_t> concerned;
  const auto found = model.experiments.find(launch.experiment);
  if (found == model.experiments.end() || found->second.over) return concerned;
  for (size_t i = 0; i < found->second.replicas.size(); ++i) {
    const Replica& replica = found->second.replicas[i];
    if (launch_of(replica) != launch || replica.seat.host != host || replica.lost) continue;
    if (replica.progress != Progress::None && replica.progress <= most) concerned.push_back(i);
  }
  return concerned;
}

void go(Turn& turn, Experiment& experiment) {
  experiment.phase = Phase::Go;
  experiment.grows_from_ms = grows_from(experiment.spec(), turn.now);
  if (experiment.run_since_ms == 0) {
    experiment.run_since_ms = std::max<TimeMs>(turn.now, 1);
    // Its end is known from now on: others may go ahead of who waits for it.
    if (experiment.spec().max_duration_ms > 0) turn.model.place_wanted = true;
  }
  for (const HostId& host : hosts_of(experiment)) {
    turn.send(SendStart{host, launch_of(decider(experiment))});
  }
}

bool gang_is_prepared(const Experiment& experiment) {
  return std::all_of(experiment.replicas.begin(), experiment.replicas.end(), [](const Replica& r) {
    return is_build(r) || r.progress == Progress::Prepared;
  });
}

// Of an elastic gang that had them before, and begins without.
void show_missing(Turn& turn, const Experiment& experiment, const std::vector<Seat>& seats) {
  if (!experiment.spec().elastic || !is_shown_try(experiment.start_failures)) return;
  for (const Replica& replica : experiment.replicas) {
    const bool has_seat = std::any_of(seats.begin(), seats.end(), [&](const Seat& seat) { return seat.replica == replica.id; });
    if (has_seat || is_build(replica)) continue;
    turn.effects.notify.push_back({experiment.id, replica.id, State::Created, kNoRoomForIt, std::nullopt, experiment.attempt});
  }
}

// All that are of this launch, a message a host.
void send_launch(Turn& turn, Experiment& experiment, const LaunchId& id) {
  std::map<HostId, SendLaunch> launches;
  for (Replica& replica : experiment.replicas) {
    if (launch_of(replica) != id) continue;
    replica.progress = Progress::Launched;
    launches[replica.seat.host].replicas.push_back(replica.id);
  }
  for (auto& [host, launch] : launches) {
    launch.host = host;
    launch.id = id;
    turn.send(std::move(launch));
  }
}

// One on each host of the gang.
void add_builds(Turn& turn, Experiment& experiment) {
  ++experiment.build_attempt;
  const std::vector<HostId> hosts = hosts_of(experiment);
  for (size_t i = 0; i < hosts.size(); ++i) {
    Replica build;
    const auto number = static_cast<uint32_t>(hosts.size() == 1 ? 0 : i + 1);
    build.id = {experiment.id, Role::Build, number};
    build.seat.replica = build.id;
    build.seat.host = hosts[i];
    build.seat.cpus = 0;   // of its own: it has what the gang was given
    begin_attempt(turn, experiment, build);
    experiment.replicas.push_back(std::move(build));
  }
}

// The more often it could not be started, the longer others keep the place that it had of them.
TimeMs begun_gives_way_ms(const Experiment& experiment) {
  constexpr uint32_t kDoublingsMax = 10;   // most of a day
  return kGiveWayToBegunMs << std::min(experiment.start_failures, kDoublingsMax);
}

}  // namespace

void launch_gang(Turn& turn, Experiment& experiment, std::vector<Seat> seats) {
  INVARIANT(is_queued(experiment), "only what waits is placed");
  ++experiment.attempt;
  experiment.wait_reason.clear();
  experiment.silence_due_ms = 0;
  experiment.silence_confirmed = false;
  experiment.placed_after = experiment.start_failures;
  show_missing(turn, experiment, seats);
  experiment.regrows = false;
  experiment.gave_way_to.reset();
  if (experiment.preempts_from_ms != 0) experiment.preempts_from_ms = turn.now + begun_gives_way_ms(experiment);
  experiment.replicas.resize(seats.size());
  for (size_t i = 0; i < seats.size(); ++i) {
    Replica& replica = experiment.replicas[i];
    replica.id = seats[i].replica;
    replica.seat = std::move(seats[i]);
    take_seat(turn.model, experiment, replica.seat);
    begin_attempt(turn, experiment, replica);
  }
  turn.touched.at(experiment.id).seats_held.assign(experiment.replicas.size(), true);
  if (experiment.spec().has_build()) {
    experiment.phase = Phase::Building;
    add_builds(turn, experiment);
    return send_launch(turn, experiment, {experiment.id, experiment.build_attempt, true});
  }
  experiment.phase = Phase::Placed;
  send_launch(turn, experiment, launch_of(decider(experiment)));
}

void launch_when_built(Turn& turn, Experiment& experiment) {
  const bool built = std::all_of(
      experiment.replicas.begin(), experiment.replicas.end(),
      [](const Replica& r) { return !is_build(r) || r.end == State::Finished; });
  if (!built) return;
  experiment.phase = Phase::Placed;
  send_launch(turn, experiment, launch_of(decider(experiment)));
}

// One replica, where the others expect it: same host, same port.
void launch_again(Turn& turn, Experiment& experiment, Replica& replica) {
  ++(is_build(replica) ? experiment.build_attempt : experiment.attempt);
  begin_attempt(turn, experiment, replica);
  send_launch(turn, experiment, launch_of(replica));
}

void on_prepared(Turn& turn, const LaunchPrepared& event) {
  if (event.cached) on_stray_unprepared(turn, event.host, event.launch);
  const std::vector<size_t> news = of_launch(turn.model, event.launch, event.host, Progress::Launched);
  if (news.empty()) return;
  Experiment* experiment = turn.touch(event.launch.experiment);
  const bool build = event.launch.of_builds;
  for (const size_t i : news) {
    Replica& replica = experiment->replicas[i];
    replica.progress = Progress::Prepared;
    if (!build || !event.cached) continue;
    replica.progress = Progress::Released;
    replica.end = State::Finished;
  }
  if (build && event.cached) return settle(turn, *experiment, false);
  if (experiment->outcome) return;
  if (experiment->phase == Phase::Go || (build && experiment->phase == Phase::Building)) {
    // A build, or a replica's own relaunch: being prepared is its Go.
    turn.send(SendStart{event.host, event.launch});
  } else if (experiment->phase == Phase::Placed && gang_is_prepared(*experiment)) {
    go(turn, *experiment);
  }
}

void on_launch_failed(Turn& turn, const LaunchFailed& event) {
  on_stray_unprepared(turn, event.host, event.launch);
  const std::vector<size_t> failed = of_launch(turn.model, event.launch, event.host, Progress::Prepared);
  if (failed.empty()) return;
  Experiment* experiment = turn.touch(event.launch.experiment);
  SendForget forget{event.host, experiment->id, {}};
  for (const size_t i : failed) {
    experiment->replicas[i].progress = Progress::Released;
    forget.replicas.push_back({experiment->replicas[i].id, event.launch.attempt});
  }
  Replica* first = &experiment->replicas[failed.front()];
  turn.send(std::move(forget));
  turn.model.place_wanted = true;
  Host* host = turn.host(event.host);
  if (event.port_taken != 0 && host != nullptr) {
    host->quarantined_ports.insert_or_assign(event.port_taken, turn.now);
    turn.refresh(event.host);
  }
  // Of use also when the attempt is ending already: the next one need not go there.
  if (event.unfit && !experiment->outcome) {
    if (!experiment->unfit_hosts) experiment->unfit_hosts = std::map<HostId, std::string>();
    experiment->unfit_hosts->insert_or_assign(event.host, event.reason);
    // Whichever its pool brings will be like that, until one is there.
    if (host != nullptr && !host->pool.empty()) experiment->unfit_hosts->insert_or_assign(id_of_pool(host->pool), event.reason);
  }
  if (!experiment->outcome && experiment->phase != Phase::Ending) {
    const bool own_launch = event.launch != launch_of(decider(*experiment));
    if (event.unfit) {
      leave_unfit_host(turn, *experiment, *first);
    } else if (!event.ours) {
      first->end = State::Failed;
      first->reason = event.reason;
      fix_outcome(turn, *experiment, State::Failed, first, event.reason);
    } else if (event.port_taken != 0) {
      start_again_at_once(turn, *experiment, event.reason);
    } else if (own_launch &&
               (experiment->start_failures + 1) % turn.policy.start_failures_per_host != 0) {
      experiment->not_before_ms = turn.now + count_failed_start(turn, *experiment);
    } else {
      start_failed(turn, *experiment, event.host, event.reason);
    }
  }
  settle(turn, *experiment, false);
}

void on_started(Turn& turn, const ReplicaStarted& event) {
  Experiment* experiment = nullptr;
  Replica* replica = turn.touch_replica(
      event.host, event.replica, event.attempt, experiment,
      [](const Replica& r) { return !r.lost && r.progress == Progress::Prepared; });
  if (replica == nullptr || experiment->phase == Phase::Placed) return;
  replica->progress = Progress::Started;
  replica->pid = event.pid;
  replica->started_unix_ms = event.unix_ms;
  if (experiment->started_unix_ms == 0) experiment->started_unix_ms = event.unix_ms;
  const bool everyone = std::all_of(
      experiment->replicas.begin(), experiment->replicas.end(),
      [](const Replica& r) { return r.progress >= Progress::Started; });
  hear(*experiment, turn.now);
  if (!everyone) return;
  experiment->start_failures = 0;
  if (is_growing(*experiment)) turn.model.place_wanted = true;
}

}  // namespace dtrain::daemon
