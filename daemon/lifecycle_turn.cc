#include "daemon/lifecycle_turn.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "daemon/dependencies.h"
#include "daemon/failure_rules.h"
#include "daemon/growth.h"
#include "daemon/placement_elastic.h"
#include "daemon/placement_fitness.h"
#include "daemon/preemption.h"
#include "daemon/queue.h"
#include "daemon/quota.h"
#include "daemon/set_rules.h"

namespace dtrain::daemon {

namespace {

// Runners redial once a second.
constexpr int64_t kHostsReturnMs = 10'000;

template <typename Id, typename Set>
void drop(std::map<Id, Set>& sets, const Id& id, const ExperimentId& experiment) {
  const auto found = sets.find(id);
  if (found == sets.end()) return;
  found->second.erase(experiment);
  if (found->second.empty()) sets.erase(found);
}

void count_costs(SetTally& tally, const Experiment& member, bool in) {
  if (!member.costs) return;
  const std::vector<double>& costs = *member.costs;
  if (tally.costs.size() < costs.size()) tally.costs.resize(costs.size());
  for (size_t i = 0; i < costs.size(); ++i) {
    std::vector<double>& all = tally.costs[i];
    const auto place = std::lower_bound(all.begin(), all.end(), costs[i]);
    if (in) {
      all.insert(place, costs[i]);
    } else {
      all.erase(place);
    }
  }
}

void drop_giving_way(Model& model, const Experiment& experiment) {
  const auto found = model.giving_way.find(*experiment.gave_way_to);
  INVARIANT(found != model.giving_way.end(), "who gives way is known by whom it does for");
  std::erase(found->second, experiment.id);
  if (found->second.empty()) model.giving_way.erase(found);
}

void count_in_set(Model& model, const Experiment& experiment, bool in) {
  if (experiment.is_shared()) model.sets[experiment.id.number].shared_lives = in && !experiment.over;
  if (experiment.id.member == 0) return;
  SetTally& tally = model.sets[experiment.id.number];
  count_member(tally, experiment, in ? 1u : ~0u);
  count_costs(tally, experiment, in);
  if (!experiment.held || experiment.over) return;
  if (in) {
    tally.held.insert(experiment.id);
  } else {
    tally.held.erase(experiment.id);
  }
}

std::optional<int> exit_code_of(const Experiment& experiment) {
  if (!experiment.over) return std::nullopt;
  return experiment.outcome->exit_code;
}

std::string reason_of(const Model& model, const Experiment& experiment, const std::string& notice) {
  if (experiment.outcome) return experiment.outcome->reason;
  const State state = state_of(experiment);
  if (state == State::Starting) {
    const std::string size = workers_text(experiment.spec(), missing_workers(experiment));
    return size + (size.empty() || notice.empty() ? "" : "; ") + notice;
  }
  if (!notice.empty()) return notice;
  // What it was stopping for beside may have been judged meanwhile.
  if (state == State::Suspended) return experiment.wait_reason + (experiment.wait_reason.empty() ? "" : "; ") + suspended_text(experiment.id);
  if (experiment.suspended) return "suspended";
  if (experiment.awaits) return awaited_text(model, experiment.submission->spec);
  if (experiment.failure) return failure_text(*experiment.failure);
  return state == State::Restarting || state == State::Pending ? experiment.wait_reason : "";
}

bool has_not_begun(State state) {
  switch (state) {
    case State::Created:
    case State::Pending:
    case State::Building:
    case State::Starting:
    case State::Restarting: return true;
    case State::Running:
    case State::Stopping:
    case State::Suspended:
    case State::Finished:
    case State::Failed:
    case State::Killed:
    case State::Lost: break;
  }
  return false;
}

// A try that was not shown, of an experiment that it is the last of: as if it had been.
void show_hidden(const Experiment& experiment, const Turn::Before& before, Effects& effects) {
  const auto was_hidden = [](State state) { return state == State::Building || state == State::Starting; };
  const auto say = [&](const std::optional<ReplicaId>& replica, State state) {
    const bool of_build = replica && replica->role == Role::Build;
    const uint32_t attempt = of_build ? experiment.build_attempt : experiment.attempt;
    effects.notify.push_back({experiment.id, replica, state, "", std::nullopt, attempt});
  };
  if (was_hidden(before.state) && !experiment.is_shared()) say(std::nullopt, before.state);
  for (const auto& [id, state] : before.replicas) {
    if (was_hidden(state) || state == State::Running) say(id, state == State::Running ? State::Starting : state);
    if (state == State::Running) say(id, state);
  }
}

void show_replicas(const Experiment& experiment, const Turn::Before& before, bool hidden, Effects& effects) {
  for (size_t i = 0; i < experiment.replicas.size(); ++i) {
    const Replica& replica = experiment.replicas[i];
    const State now = state_of(experiment, replica);
    const State* const was = before.state_of(replica.id, i);
    if (was != nullptr && *was == now) continue;
    if (hidden && !is_terminal(now)) continue;
    if (!is_shown(replica)) continue;
    // As it was shown when it was submitted, or left out.
    if (was == nullptr && now == State::Created && experiment.id.member == 0) continue;
    std::optional<int> code;
    // Whoever ended with the experiment has no status of its own to tell.
    const bool own_end = replica.exit && (now != State::Finished || !is_failure(*replica.exit));
    if (is_terminal(now) && own_end) code = exit_status(*replica.exit);
    effects.notify.push_back(
        {experiment.id, replica.id, now, replica.reason, code, replica.attempt});
  }
}

// An end is told of the replicas first and of the experiment last; a beginning the other way round.
void show(const Model& model, const Experiment& experiment, const Turn::Before& before, Effects& effects) {
  const State now = state_of(experiment);
  StateChange change{experiment.id, std::nullopt, now, reason_of(model, experiment, before.notice),
                     exit_code_of(experiment), experiment.attempt};
  if (experiment.outcome) change.printer = experiment.outcome->printer;
  const bool was_hidden = !is_shown_try(before.failed_before) && has_not_begun(before.state);
  const bool hidden = was_hidden && has_not_begun(now);
  if (was_hidden && !hidden) show_hidden(experiment, before, effects);
  const bool changed = before.state != now && !hidden && !experiment.is_shared();   // its name is the set's
  if (changed && !is_terminal(now)) effects.notify.push_back(change);
  show_replicas(experiment, before, hidden, effects);
  if (changed && is_terminal(now)) effects.notify.push_back(change);
}

void move_seats(Model& model, const Experiment& experiment, const std::vector<bool>& held_before, TimeMs at) {
  for (size_t i = 0; i < experiment.replicas.size(); ++i) {
    const Replica& replica = experiment.replicas[i];
    const bool before = i < held_before.size() && held_before[i];
    const bool now = holds_seat(experiment, replica);
    if (before && !now) {
      give_seat(model, experiment, replica.seat);
      more_room_came(model, at);
    }
    if (!before && now) take_seat(model, experiment, replica.seat);
  }
}

// In the same step, by what has become of others.
bool may_be_touched_again(const Experiment& experiment) {
  return experiment.is_shared() || experiment.submission->spec.search.max_failed != Search::kNoLimit;
}

// Lets as many members of the set into the queue as its concurrency has room for.
void fill_slots(Turn& turn, uint32_t number) {
  const auto tally = turn.model.sets.find(number);
  if (tally == turn.model.sets.end()) return;
  while (!tally->second.held.empty()) {
    Experiment& next = turn.model.experiments.at(*tally->second.held.begin());
    if (next.awaits) return;   // and so do all of them
    if (tally->second.in_slots >= static_cast<uint32_t>(next.spec().concurrency)) return;
    hold_no_more(turn, next, &Experiment::held);
  }
}

// A set's TensorBoard ends when all members have.
void end_what_is_shared(Turn& turn, uint32_t number) {
  const auto tally = turn.model.sets.find(number);
  if (tally == turn.model.sets.end() || set_state(tally->second) != State::Stopping) return;
  if (turn.model.experiments.at({number, 0}).outcome) return;
  Experiment* shared = turn.touch({number, 0});
  fix_outcome(turn, *shared, State::Finished, nullptr, "");
  settle(turn, *shared, false);
}

void show_set(Turn& turn, uint32_t number, State before) {
  const auto tally = turn.model.sets.find(number);
  if (tally == turn.model.sets.end()) return;
  const State now = set_state(tally->second);
  if (now != before) turn.effects.notify.push_back({{number, 0}, {}, now, "", {}, 0});
  if (is_terminal(now)) turn.model.sets.erase(tally);
}

}  // namespace

bool is_shown_try(uint32_t failed_before) { return failed_before < kFailedStartsShown || std::has_single_bit(failed_before + 1); }

void unindex(Model& model, const Experiment& experiment) {
  count_in_set(model, experiment, false);
  if (experiment.over) return;
  model.live.erase(experiment.id);
  if (const TimeMs at_ms = deadline_of(experiment); at_ms != 0) {
    model.deadlines.erase({at_ms, experiment.id});
  }
  if (is_queued(experiment)) leave(model, experiment);
  const QueueOrder order = order_of(experiment);
  model.preemptible_live -= experiment.spec().preemptible;
  model.preemptible.erase(order);
  model.ending.erase(experiment.id);
  if (is_giving_way(experiment)) drop_giving_way(model, experiment);
  model.growing.erase(order);
  model.returning.erase(order);
  model.regrowing.erase(order);
  for (const Replica& replica : experiment.replicas) {
    if (is_seated(experiment, replica)) drop(model.seated, replica.seat.host, experiment.id);
  }
  for (const HostId& host : unfit_hosts(experiment)) drop(model.unfit, host, experiment.id);
}

void index(Model& model, const Experiment& experiment) {
  ++model.changes;
  count_in_set(model, experiment, true);
  if (experiment.over) return;
  model.live.insert(experiment.id);
  if (const TimeMs at_ms = deadline_of(experiment); at_ms != 0) {
    model.deadlines.insert({at_ms, experiment.id});
  }
  if (is_queued(experiment)) enqueue(model, experiment);
  model.preemptible_live += experiment.spec().preemptible;
  if (is_ending(experiment)) model.ending.insert(experiment.id);
  if (may_give_way(experiment)) model.preemptible.insert(order_of(experiment));
  if (is_giving_way(experiment)) {
    std::vector<ExperimentId>& who = model.giving_way[*experiment.gave_way_to];
    who.insert(std::lower_bound(who.begin(), who.end(), experiment.id), experiment.id);
  }
  if (is_growing(experiment)) model.growing.insert(order_of(experiment));
  if (is_returning(experiment)) model.returning.insert(order_of(experiment));
  if (experiment.regrows && (is_returning(experiment) || is_queued(experiment))) model.regrowing.insert(order_of(experiment));
  for (const Replica& replica : experiment.replicas) {
    if (is_seated(experiment, replica)) model.seated[replica.seat.host].insert(experiment.id);
  }
  for (const HostId& host : unfit_hosts(experiment)) model.unfit[host].insert(experiment.id);
}

void hold_no_more(Turn& turn, Experiment& experiment, bool Experiment::* held) {
  const ExperimentId& id = experiment.id;
  const State before = state_of(experiment);
  if (id.member > 0 || experiment.is_shared()) turn.set_states.emplace(id.number, set_state(turn.model.sets.at(id.number)));
  unindex(turn.model, experiment);
  experiment.*held = false;
  index(turn.model, experiment);
  const State now = state_of(experiment);
  if (now != before && !experiment.is_shared()) turn.effects.notify.push_back({id, {}, now, "", {}, experiment.attempt});
  turn.model.place_wanted = true;
}

std::vector<ExperimentId> live_of(const Model& model, const ExperimentId& id) {
  const uint32_t last = id.member == 0 ? UINT32_MAX : id.member;
  return {model.live.lower_bound(id), model.live.upper_bound({id.number, last})};
}

void more_room_came(Model& model, TimeMs now) {
  constexpr TimeMs kSettlesMs = 5'000, kMostMs = 30'000;
  // Who waits is looked at when no more comes, or it would wait for ever where some comes all the time.
  const bool was_looked_at = std::exchange(model.room_settled, false) || now >= model.elastic_from_ms + kSettlesMs;
  if (was_looked_at) model.room_came_ms = now;
  model.elastic_from_ms = std::max(model.elastic_from_ms, std::min(now + kSettlesMs, model.room_came_ms + kMostMs));
}

TimeMs deadline_of(const Experiment& experiment) {
  TimeMs at_ms = 0;
  const auto by = [&](TimeMs candidate_ms) {
    if (at_ms == 0 || candidate_ms < at_ms) at_ms = candidate_ms;
  };
  if (experiment.over) return 0;
  if (experiment.outcome) {
    // Somebody still has the finish grace: they have not been told to stop.
    const TimeMs grace_ends_ms = experiment.outcome->at_ms + experiment.spec().finish_grace_ms;
    const bool graced = std::any_of(
        experiment.replicas.begin(), experiment.replicas.end(),
        [](const Replica& replica) { return is_alive(replica) && !replica.stop_sent; });
    if (graced) by(std::max<TimeMs>(grace_ends_ms, 1));
    return at_ms;
  }
  const int64_t max_ms = experiment.spec().max_duration_ms;
  if (max_ms > 0 && experiment.run_since_ms != 0) {
    by(std::max<TimeMs>(experiment.run_since_ms + max_ms, 1));
  }
  const bool relaunch = std::any_of(
      experiment.replicas.begin(), experiment.replicas.end(),
      [&](const Replica& replica) { return awaits_relaunch(experiment, replica); });
  if (experiment.not_before_ms > 0 && (experiment.phase == Phase::None || relaunch)) {
    by(experiment.not_before_ms);
  }
  if (experiment.grows_from_ms > 0 && may_grow(experiment)) by(experiment.grows_from_ms);
  if (const TimeMs due_ms = silence_due_of(experiment); due_ms > 0) by(due_ms);
  return at_ms;
}

Experiment* Turn::touch(const ExperimentId& named) {
  const auto found = model.experiments.find(named);
  if (found == model.experiments.end()) return nullptr;
  Experiment& experiment = found->second;
  const ExperimentId id = experiment.id;   // `named` may lie in what this takes it out of
  if (touched.contains(id)) return experiment.over ? nullptr : &experiment;
  if (experiment.over) return nullptr;
  if (id.member > 0 || experiment.is_shared()) {
    set_states.emplace(id.number, set_state(model.sets.at(id.number)));
  }
  Before before;
  before.state = state_of(experiment);
  const bool has_place = experiment.phase != Phase::None && experiment.phase != Phase::Ending;
  before.failed_before = has_place ? experiment.placed_after : experiment.start_failures;
  for (const Replica& replica : experiment.replicas) {
    before.replicas.emplace_back(replica.id, state_of(experiment, replica));
    before.seats_held.push_back(holds_seat(experiment, replica));
  }
  unindex(model, experiment);
  touched.emplace(id, std::move(before));
  return &experiment;
}

Replica* Turn::touch_replica(const HostId& host, const ReplicaId& id, uint32_t attempt,
                             Experiment*& experiment, bool (*concerns)(const Replica&)) {
  const auto found = model.experiments.find(id.experiment);
  if (found == model.experiments.end() || found->second.over) return nullptr;
  Replica* replica = find_replica(found->second, id, attempt);
  if (replica == nullptr || replica->seat.host != host || !concerns(*replica)) return nullptr;
  experiment = touch(id.experiment);
  return replica;
}

Host* Turn::host(const HostId& id) {
  const auto found = model.hosts.find(id);
  return found == model.hosts.end() ? nullptr : &found->second;
}

void Turn::send(Send message) {
  Host* to = host(std::visit([](const auto& any) { return any.host; }, message));
  if (to == nullptr || !to->connected) return;
  // Until it arrives nothing there is older than this message.
  if (std::holds_alternative<SendLaunch>(message) || std::holds_alternative<SendStart>(message)) {
    to->last_contact_ms = now;
  }
  effects.send.push_back(std::move(message));
}

void Turn::put_back() {
  for (const auto& [id, before] : std::exchange(touched, {})) {
    const Experiment& experiment = model.experiments.at(id);
    if (before.save && !saved.contains(id)) {
      effects.persist.push_back(id);
      if (may_be_touched_again(experiment)) saved.insert(id);
    }
    move_seats(model, experiment, before.seats_held, now);
    index(model, experiment);
    show(model, experiment, before, effects);
    if (experiment.over) ended.push_back(id);
  }
}

Effects Turn::finish() {
  do {
    put_back();
    end_failing_sets(*this);
    put_back();
    for (const auto& [number, before] : set_states) fill_slots(*this, number);
    for (const auto& [number, before] : set_states) end_what_is_shared(*this, number);
    put_back();
  } while (fail_with_ended(*this));
  let_begin(*this);
  for (const auto& [number, before] : set_states) fill_slots(*this, number);   // of those that wait no more
  for (const auto& [number, before] : set_states) show_set(*this, number, before);
  for (const HostId& id : stale_hosts) {
    ++model.changes;
    if (const Host* changed = host(id)) model.free.put(free_host(model, *changed));
  }
  forget_revoked();
  return std::move(effects);
}

// What waits for such a host alone learns that none like it is there.
void Turn::forget_revoked() {
  std::erase_if(model.revoked, [&](const auto& entry) {
    const HostId id = entry.first;
    const Host* known = host(id);
    if (known == nullptr) return true;
    if (known->connected || model.seated.contains(id)) return false;
    model.free.remove(id);
    model.hosts.erase(id);
    model.place_wanted = true;
    return true;
  });
}

void add_pool(Model& model, const Pool& pool) {
  model.pools.emplace(pool.name, pool);
  for (int i = 1; i <= pool.hosts_max; ++i) {
    Host host = potential_host(pool, i);
    const HostId id = host.id;
    model.free.put(free_host(model, model.hosts.emplace(id, std::move(host)).first->second));
  }
}

namespace {

std::string name_in_seats(const Model& model, const HostId& host, const std::set<ExperimentId>& ids) {
  for (const ExperimentId& id : ids) {
    for (const Replica& replica : model.experiments.at(id).replicas) {
      if (replica.seat.host == host && !replica.seat.host_name.empty()) return replica.seat.host_name;
    }
  }
  return host.hex.substr(0, 8);
}

}  // namespace

void rebuild(Model& model, TimeMs now) {
  model.live.clear();
  model.deadlines.clear();
  model.seated.clear();
  model.unfit.clear();
  model.sets.clear();
  model.preemptible_live = 0;
  model.preemptible.clear();
  model.giving_way.clear();
  model.ending.clear();
  model.growing.clear();
  model.returning.clear();
  model.regrowing.clear();
  model.awaited.clear();
  model.queue = {};
  const Submission* seen = nullptr;
  bool awaits = false;
  for (auto& [id, experiment] : model.experiments) {
    if (experiment.submission.get() != std::exchange(seen, experiment.submission.get())) {
      // What it waits for has a lower number: whether that lives is known by now.
      awaits = !awaited_by(model, seen->spec).empty();
    }
    experiment.awaits = awaits && !experiment.over;
    if (experiment.awaits) begin_to_wait(model, *seen);
    const bool waits = experiment.phase == Phase::None && !experiment.outcome && !experiment.suspended;
    const bool had_its_turn = experiment.attempt > 0 && !experiment.held;   // it keeps its slot between attempts
    experiment.held = waits && !had_its_turn && id.member > 0 && experiment.spec().concurrency > 0;
    for (Replica& replica : experiment.replicas) replica.stop_sent = replica.leaves = false;
    experiment.regrows = false;
    index(model, experiment);
  }
  for (const auto& [host_id, ids] : model.seated) {
    // Its Hello will say who it is. Until then only its name in seats is known.
    Host& host = model.hosts[host_id];
    if (host.id == host_id) continue;
    host.id = host_id;
    host.name = name_in_seats(model, host_id, ids);
    // What it runs counts as lost when its lease is over: one that can't come back says nothing else any more.
    const auto revoked = model.revoked.find(host_id);
    host.last_contact_ms = revoked == model.revoked.end() ? now : std::min(revoked->second, now);
  }
  const Policy any;
  Turn turn(model, any, now);
  std::set<uint32_t> sets;
  for (const auto& [number, tally] : model.sets) sets.insert(number);
  for (const uint32_t number : sets) fill_slots(turn, number);
  std::erase_if(model.sets, [](const auto& entry) { return is_terminal(set_state(entry.second)); });
  for (const auto& [host_id, host] : model.hosts) model.free.put(free_host(model, host));
  count_users(model);
  // The tick at that time also looks when each host that is away still is due.
  if (!model.live.empty()) {
    model.hosts_awaited_until_ms = model.elastic_from_ms = now + kHostsReturnMs;
    model.room_came_ms = now;
    model.room_settled = false;
    model.deadlines.insert({model.hosts_awaited_until_ms, ExperimentId{}});
  }
  model.place_wanted = true;
}

}  // namespace dtrain::daemon
