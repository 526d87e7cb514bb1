#include "daemon/lifecycle.h"

#include <fmt/format.h>

#include <algorithm>

#include "daemon/dependencies.h"
#include "daemon/failure_rules.h"
#include "daemon/growth.h"
#include "daemon/lifecycle_turn.h"
#include "daemon/placement_elastic.h"
#include "daemon/placement_fitness.h"
#include "daemon/placing_pass.h"
#include "daemon/preemption.h"
#include "daemon/set_rules.h"
#include "daemon/wait_reason.h"
#include "schema/text_formats.h"

namespace dtrain::daemon {

namespace {

void on_submitted(Turn& turn, const Submitted& event) {
  const Submission& submission = *event.submission;
  const Spec& spec = submission.spec;
  INVARIANT(submission.number > 0, "a submission has its number before it is scheduled");
  if (spec.is_set()) {
    turn.effects.notify.push_back({{submission.number, 0}, {}, State::Created, "", {}, 0});
  }
  begin_to_wait(turn.model, submission);
  const std::string awaited = awaited_text(turn.model, spec);   // empty: nobody
  const uint32_t last = submission.last_member();
  for (uint32_t member = submission.first_member(); member <= last; ++member) {
    Experiment experiment = first_state(event.submission, member);
    experiment.awaits = !awaited.empty();
    experiment.held = member > 0 && spec.concurrency > 0 && !experiment.suspended;
    const auto [place, added] =
        turn.model.experiments.emplace(experiment.id, std::move(experiment));
    INVARIANT(added, "a number is given to one submission");
    const Experiment& made = place->second;
    const std::string why = made.suspended ? suspended_text(made.id) : awaited;
    if (!made.is_shared()) turn.effects.notify.push_back({made.id, {}, state_of(made), why, {}, 0});
    // A member's replicas are shown once they have a place: there may be very many.
    if (member == 0) {
      const LeastGang least(made.spec());   // the others once they have a place
      for (const ReplicaId& replica : replica_ids(made.id, least.spec())) {
        turn.effects.notify.push_back({made.id, replica, State::Created, "", {}, 0});
      }
    }
    index(turn.model, made);
  }
  if (spec.is_set()) turn.set_states[submission.number] = State::Created;
  turn.model.place_wanted = true;
}

// Killing is idempotent; once an outcome is fixed only the force of it can still change.
void kill_one(Turn& turn, const ExperimentId& id, const KillWanted& event) {
  Experiment* experiment = turn.touch(id);
  if (experiment == nullptr) return;
  if (!experiment->outcome) {
    const bool by_another = !event.by.empty() && event.by != experiment->submission->user;
    fix_outcome(turn, *experiment, State::Killed, nullptr, by_another ? "killed by " + event.by : "killed");
    experiment->outcome->with_set = event.id != id;
  }
  if (event.force) experiment->stop_forced = true;
  settle(turn, *experiment, event.force);
}

void on_kill(Turn& turn, const KillWanted& event) {
  if (turn.model.unreadable.erase(event.id.number) > 0) {
    stop_unreadable(turn, event.id.number, event.force);
    return end_awaited_unreadable(turn, event.id.number);
  }
  for (const ExperimentId& id : live_of(turn.model, event.id)) kill_one(turn, id, event);
}

// Its `max-duration` counts anew when it goes on, and its slot in its set is another's once it has nothing any more.
void suspend_one(Turn& turn, const ExperimentId& id, bool suspended) {
  const Experiment& known = turn.model.experiments.at(id);
  if (known.outcome || known.suspended == suspended) return;
  Experiment& experiment = *turn.touch(id);
  experiment.suspended = suspended;
  experiment.held = !suspended && experiment.phase == Phase::None && id.member > 0 && experiment.spec().concurrency > 0;
  experiment.not_before_ms = 0;
  experiment.preempts_from_ms = 0;
  experiment.regrows = false;
  if (suspended) experiment.run_since_ms = 0;
  const bool placed = experiment.phase != Phase::None && experiment.phase != Phase::Ending;
  if (placed) start_again_at_once(turn, experiment, "");
  experiment.wait_reason.clear();
  turn.model.place_wanted = true;   // others may grow into what it waited for
  settle(turn, experiment, false);
}

void on_suspend(Turn& turn, const SuspendWanted& event) {
  const ExperimentId shared{event.id.number, 0};
  for (const ExperimentId& id : live_of(turn.model, event.id)) suspend_one(turn, id, event.suspended);
  // What shows a member shows it again.
  if (!event.suspended && event.id != shared && turn.model.live.contains(shared)) suspend_one(turn, shared, false);
}

void on_exited(Turn& turn, const ReplicaExited& event) {
  Experiment* experiment = nullptr;
  Replica* replica =
      turn.touch_replica(event.host, event.replica, event.attempt, experiment,
                         [](const Replica& r) { return r.progress < Progress::Exited && !r.lost; });
  if (replica == nullptr) return;
  const bool was_started = start_committed(*experiment, *replica);
  const bool everyone_started = all_started(*experiment);
  replica->exit = event.exit;
  keep_first_lines(*experiment, *replica);
  replica->progress = Progress::Exited;
  experiment->finished_unix_ms = std::max(experiment->finished_unix_ms, event.exit.unix_ms);
  // Before everyone runs, a dead keeper is an accident of ours. An exit is the program's own doing.
  const bool ours = !was_started || (event.exit.lost_keeper && !everyone_started);
  if (ours && !experiment->outcome && experiment->phase != Phase::Ending) {
    start_failed(turn, *experiment, replica->seat.host,
                 fmt::format("{}: {}", to_string(replica->id), cause_of(event.exit)));
  } else {
    judge_exit(turn, *experiment, *replica);
  }
  settle(turn, *experiment, false);
}

void on_released(Turn& turn, const ReplicaReleased& event) {
  Experiment* experiment = nullptr;
  Replica* replica = turn.touch_replica(event.host, event.replica, event.attempt, experiment,
                                        [](const Replica& r) { return !is_gone(r); });
  if (replica == nullptr) {
    on_stray_released(turn, event);
    return;
  }
  const bool unexplained = replica->progress < Progress::Exited;
  replica->progress = Progress::Released;
  if (!event.left_behind.empty()) {
    replica->reason += (replica->reason.empty() ? "" : "; ") + event.left_behind;
  }
  turn.send(SendForget{replica->seat.host, experiment->id, {{replica->id, replica->attempt}}});
  if (unexplained && !replica->end) {
    judge_loss(turn, *experiment, *replica, "released without an exit status");
  }
  turn.model.place_wanted = true;
  settle(turn, *experiment, false);
}

void on_tick(Turn& turn) {
  std::vector<ExperimentId> due;
  for (const auto& [at_ms, id] : turn.model.deadlines) {
    if (at_ms > turn.now) break;
    due.push_back(id);
  }
  for (const ExperimentId& id : due) {
    if (id.number == 0) {
      find_lost_hosts(turn);
      find_leaving_hosts(turn);
      turn.model.place_wanted = true;   // whom no host is left for is found by the pass
      continue;
    }
    const bool known = turn.touched.contains(id);
    Experiment* experiment = turn.touch(id);
    if (experiment == nullptr) continue;   // a host lost in this same tick has ended it
    const bool silent = look_for_silence(turn, *experiment);   // which is noted, and not stored
    const Experiment before = *experiment;
    const int64_t max_ms = experiment->spec().max_duration_ms;
    if (!experiment->outcome && max_ms > 0 && experiment->run_since_ms != 0 &&
        turn.now >= experiment->run_since_ms + max_ms) {
      end_overdue(turn, *experiment);
    }
    if (silent && !experiment->outcome) end_for_silence(turn, *experiment);
    settle(turn, *experiment, false);
    turn.touched.at(id).save = before != *experiment || known;
    if (experiment->grows_from_ms == 0 || experiment->grows_from_ms > turn.now) continue;
    experiment->grows_from_ms = 0;   // which needs no row: the one that is there says no more
    turn.model.place_wanted = true;
  }
}

void on_pool_asked(Turn& turn, const PoolAsked& event) {
  auto& asked = turn.model.asked;
  const auto known = asked.find(event.experiment);
  if (event.what.empty()) {
    if (known != asked.end()) asked.erase(known);
    return;
  }
  const auto found = turn.model.experiments.find(event.experiment);
  if (found == turn.model.experiments.end() || !is_queued(found->second)) return;
  if (known != asked.end() && known->second == event.what) return;
  asked.insert_or_assign(event.experiment, event.what);
  const Experiment& experiment = found->second;
  if (experiment.is_shared() || !event.is_news) return;   // its name is the set's
  turn.effects.notify.push_back({experiment.id, std::nullopt, state_of(experiment), event.what, std::nullopt,
                                 experiment.attempt});
}

// Tells those who must end and don't know it yet, with `force` all of them; one message a host.
void stop_whom_it_concerns(Turn& turn, Experiment& experiment, bool force) {
  std::map<HostId, SendStop> stops;
  for (Replica& replica : experiment.replicas) {
    if (!must_stop(experiment, replica, turn.now)) continue;
    if (replica.stop_sent && !force) continue;
    replica.stop_sent = true;
    SendStop& stop = stops[replica.seat.host];
    stop.replicas.push_back({replica.id, replica.attempt});
  }
  for (auto& [host, stop] : stops) {
    stop.host = host;
    stop.experiment = experiment.id;
    stop.grace_ms = experiment.stop_forced ? 0 : experiment.spec().stop_grace_ms;
    stop.reason = experiment.outcome     ? experiment.outcome->reason
                  : experiment.suspended ? "suspended"
                  : experiment.failure   ? failure_text(*experiment.failure)
                  : experiment.gave_way_to && experiment.phase == Phase::Ending ? gave_way_text(turn.model, experiment)
                                                                                : experiment.wait_reason;
    const bool goes_on = !experiment.outcome && experiment.phase == Phase::Go;
    if (stop.reason.empty()) stop.reason = goes_on ? "its host leaves" : "the experiment has ended";
    turn.send(std::move(stop));
  }
}

bool backoff_over(Turn& turn, Experiment& experiment) {
  if (experiment.not_before_ms > turn.now) return false;
  experiment.not_before_ms = 0;
  return true;
}

// A lost replica may still run, unless its keeper had a lease: then it has ended it by now.
bool can_have_no_live_copy(const Replica& replica) {
  if (replica.progress == Progress::None || replica.progress == Progress::Released) return true;
  return replica.lost && (replica.lease_ms > 0 || replica.progress == Progress::Exited);
}

void give_up(Turn& turn, const ExperimentId& id) {
  Experiment* experiment = turn.touch(id);
  INVARIANT(experiment != nullptr, "what is queued is alive");
  fix_outcome(turn, *experiment, State::Failed, nullptr, no_host_left_text(turn.model, *experiment));
  settle(turn, *experiment, false);
}

// Says once why it waits, if there is anything to wait for.
void refuse(Turn& turn, const ExperimentId& id) {
  Experiment& experiment = turn.model.experiments.at(id);
  if (has_no_host_left(turn.model, experiment, turn.now)) return give_up(turn, id);
  if (experiment.regrows) {   // what was kept for it is no more: it waits like anybody else
    turn.touch(id)->regrows = false;
    turn.touched.at(id).save = false;
  }
  if (!experiment.wait_reason.empty()) return;
  experiment.wait_reason = wait_reason(turn.model, id, turn.now);
  if (experiment.is_shared()) return;   // its name is the set's
  turn.effects.notify.push_back(
      {id, std::nullopt, state_of(experiment), experiment.wait_reason, std::nullopt, experiment.attempt});
}

// Their `max-duration` counts anew when they go on: they may wait for long.
void let_give_way(Turn& turn, const ExperimentId& to, const std::vector<ExperimentId>& who) {
  Experiment& favoured = turn.model.experiments.at(to);
  favoured.preempts_from_ms = turn.now + kGiveWayAgainMs;
  for (const ExperimentId& id : who) {
    Experiment* experiment = turn.touch(id);
    INVARIANT(experiment != nullptr, "who has a place lives");
    ++turn.effects.gave_way;
    experiment->gave_way_to = to;
    experiment->run_since_ms = 0;
    start_again_at_once(turn, *experiment, gave_way_text(turn.model, *experiment));
    settle(turn, *experiment, false);
  }
  turn.effects.notify.push_back({to, std::nullopt, state_of(favoured), give_way_text(who), std::nullopt, favoured.attempt});
}

// Its seats were given back one by one.
void finish_experiment(Experiment& experiment) {
  experiment.over = true;
  experiment.not_before_ms = 0;
}

}  // namespace

Replica* find_replica(Experiment& experiment, const ReplicaId& id, uint32_t attempt) {
  const auto found = std::find_if(experiment.replicas.begin(), experiment.replicas.end(),
                                  [&](const Replica& replica) { return replica.id == id; });
  if (found == experiment.replicas.end() || found->attempt != attempt) return nullptr;
  return &*found;
}

void settle(Turn& turn, Experiment& experiment, bool force) {
  INVARIANT(!experiment.over, "what is over never changes");
  stop_whom_it_concerns(turn, experiment, force);
  auto& replicas = experiment.replicas;
  if (experiment.outcome || experiment.phase == Phase::Ending) {
    for (Replica& replica : replicas) {
      if (replica.progress != Progress::None) continue;
      replica.progress = Progress::Released;   // it only had a seat
    }
  }

  if (experiment.outcome) {
    for (Replica& replica : replicas) {
      if (replica.progress >= Progress::Exited || replica.lost) conclude(experiment, replica);
    }
    if (std::all_of(replicas.begin(), replicas.end(), is_gone)) finish_experiment(experiment);
    return;
  }

  switch (experiment.phase) {
    case Phase::Placed: break;   // on_prepared() goes on
    case Phase::Building:
    case Phase::Go:
      if (experiment.silence_due_ms == 0) hear(experiment, turn.now);
      for (Replica& replica : replicas) {
        if (awaits_relaunch(experiment, replica) && backoff_over(turn, experiment)) {
          launch_again(turn, experiment, replica);
        }
      }
      if (experiment.phase == Phase::Building) launch_when_built(turn, experiment);
      break;
    case Phase::Ending:
      // The next attempt may start only when nothing of this one can be alive anywhere.
      if (!std::all_of(replicas.begin(), replicas.end(), can_have_no_live_copy)) break;
      if (experiment.failure) {
        judge_ended_attempt(turn, experiment);
        if (experiment.outcome) return settle(turn, experiment, force);
      }
      experiment.phase = Phase::None;
      experiment.finished_unix_ms = 0;
      [[fallthrough]];
    case Phase::None:
      if (backoff_over(turn, experiment)) turn.model.place_wanted = true;
      break;
  }
}

Effects step(Model& model, const Event& event, const Policy& policy, TimeMs now) {
  struct Table {
    Turn& turn;
    void operator()(const Submitted& e) { on_submitted(turn, e); }
    void operator()(const KillWanted& e) { on_kill(turn, e); }
    void operator()(const SuspendWanted& e) { on_suspend(turn, e); }
    void operator()(const HostConnected& e) { on_connected(turn, e); }
    void operator()(const HostDisconnected& e) { on_disconnected(turn, e); }
    void operator()(const HostRevoked& e) { on_revoked(turn, e); }
    void operator()(const HostLeaves& e) { on_leaves(turn, e); }
    void operator()(const HostDrained& e) { on_drained(turn, e); }
    void operator()(const HostOpened& e) { on_opened(turn, e); }
    void operator()(const HostContact& e) { on_contact(turn, e); }
    void operator()(const HostChanged& e) { on_changed(turn, e); }
    void operator()(const LaunchPrepared& e) { on_prepared(turn, e); }
    void operator()(const LaunchFailed& e) { on_launch_failed(turn, e); }
    void operator()(const ReplicaStarted& e) { on_started(turn, e); }
    void operator()(const ReplicaExited& e) { on_exited(turn, e); }
    void operator()(const ReplicaReleased& e) { on_released(turn, e); }
    void operator()(const OutputCame& e) { on_output_came(turn, e); }
    void operator()(const RungReached& e) { on_rung_reached(turn, e); }
    void operator()(const PoolAsked& e) { on_pool_asked(turn, e); }
    void operator()(const Tick&) { on_tick(turn); }
  };
  Turn turn(model, policy, now);
  std::visit(Table{turn}, event);
  return turn.finish();
}

Effects place_pending(Model& model, const Policy& policy, TimeMs now) {
  Turn turn(model, policy, now);
  model.place_wanted = false;
  if (now >= model.elastic_from_ms) model.room_settled = true;
  keep_for_no_one_else(model);
  PlacingPass pass(model, now);
  while (auto found = pass.next()) {
    Experiment* experiment = turn.touch(found->id);
    INVARIANT(experiment != nullptr, "what is queued is alive");
    turn.touched.at(found->id).notice = std::move(found->placed.notice);
    launch_gang(turn, *experiment, std::move(found->placed.seats));
  }
  for (const ExperimentId& id : pass.refused()) refuse(turn, id);
  for (const auto& [to, who] : pass.give_way()) let_give_way(turn, to, who);
  if (!pass.is_settling() && pass.give_way().empty()) grow_one(turn);   // who waits goes first
  return turn.finish();
}

}  // namespace dtrain::daemon
