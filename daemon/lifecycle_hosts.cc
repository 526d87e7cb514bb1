// Hosts that come, go and are lost. A Hello names what the host holds; compared with what the model
// wants there, each replica is kept, launched again, started again, stopped, or lost.
#include <fmt/format.h>

#include <algorithm>

#include "daemon/failure_rules.h"
#include "daemon/lifecycle_turn.h"
#include "daemon/waits_for.h"
#include "schema/text_formats.h"

namespace dtrain::daemon {

namespace {

constexpr int64_t kStrayGraceMs = 10'000;

// What has no lease is then said to be waited for.
int64_t lost_after_ms(const Host& host, const Spec& spec, const Policy& policy) {
  if (host.same_machine) return policy.local_grace_ms;
  const int64_t lease_ms = lease_ms_of(spec, policy);
  return (lease_ms == 0 ? policy.lease_ms : lease_ms) + policy.lease_margin_ms;
}

// Past the lease its keepers stop it, and that may take the whole of its stop-grace.
int64_t grace_after_lease_ms(const Experiment& experiment, const HostId& host) {
  const bool leased = std::any_of(
      experiment.replicas.begin(), experiment.replicas.end(),
      [&](const Replica& r) { return r.seat.host == host && r.lease_ms > 0; });
  return leased ? experiment.spec().stop_grace_ms : 0;
}

// It may go on there for as long as the host is away: nothing ends it, and nothing may run in its place. What became of it
// is known once the host is back, or can't come back.
bool waits_for_its_host(const Model& model, const Experiment& experiment, const Replica& replica) {
  if (experiment.outcome || experiment.failure || may_restart(experiment.spec())) return false;
  if (!is_alive(replica) || !start_committed(experiment, replica) || is_build(replica)) return false;
  return replica.lease_ms == 0 && !model.revoked.contains(replica.seat.host);
}

// Asked of all hosts that a turn concerns before it touches anything: what is touched is seated nowhere.
std::vector<ExperimentId> seated_on(const Model& model, const HostId& host) {
  const auto seated = model.seated.find(host);
  if (seated == model.seated.end()) return {};
  return {seated->second.begin(), seated->second.end()};
}

// Lost, and its experiment went on without it: back again it is a stray.
bool given_up(const Experiment& experiment, const Replica& replica) {
  return replica.lost && (replica.end || experiment.phase == Phase::None);
}

// What counts as released here and is held there all the same is a stray too: a host that was lost
// before Start may have prepared it after all. Had it said Released, it will say so again.
bool is_stray(Model& model, const HostId& host, const HeldReplicaFact& fact) {
  const auto found = model.experiments.find(fact.replica.experiment);
  if (found == model.experiments.end()) return true;
  Experiment& experiment = found->second;
  const Replica* replica = find_replica(experiment, fact.replica, fact.attempt);
  if (replica == nullptr || replica->seat.host != host) return true;
  return experiment.over || replica->progress == Progress::Released ||
         given_up(experiment, *replica);
}

// The host has it, as it should. Start is repeated: the last one may have been lost on the way.
void keep_held(Turn& turn, Experiment& experiment, Replica& replica, std::set<LaunchId>& started) {
  replica.lost = false;
  replica.stop_sent = false;
  if (experiment.outcome || experiment.phase == Phase::Ending) return;
  if (replica.progress == Progress::Prepared && start_committed(experiment, replica) &&
      started.insert(launch_of(replica)).second) {
    turn.send(SendStart{replica.seat.host, launch_of(replica)});
  }
}

// The host does not have it. Before Go its launch was never seen or did not last: say it again.
void miss_held(Turn& turn, Experiment& experiment, Replica& replica,
               std::map<LaunchId, SendLaunch>& again) {
  if (replica.progress >= Progress::Exited || replica.lost) {
    replica.progress = Progress::Released;
    return;
  }
  const bool ending = experiment.outcome || experiment.phase == Phase::Ending;
  if (!ending && !start_committed(experiment, replica)) {
    replica.progress = Progress::Launched;
    again[launch_of(replica)].replicas.push_back(replica.id);
    return;
  }
  const bool was_launched_only = !start_committed(experiment, replica);
  replica.progress = Progress::Released;
  if (was_launched_only) return;
  replica.lost = true;
  const Host* host = turn.host(replica.seat.host);
  judge_loss(turn, experiment, replica,
             fmt::format("lost: the runner on {} came back without it", host->name));
}

void reconcile(Turn& turn, const HostId& host, const ExperimentId& id,
               const std::set<HeldReplicaFact>& held) {
  Experiment* experiment = turn.touch(id);
  if (experiment == nullptr) return;
  hear(*experiment, turn.now);
  const Experiment before = *experiment;
  std::map<LaunchId, SendLaunch> again;
  std::set<LaunchId> started;
  for (Replica& replica : experiment->replicas) {
    if (replica.seat.host != host || !is_seated(*experiment, replica)) continue;
    if (replica.progress == Progress::None || awaits_relaunch(*experiment, replica)) continue;
    if (given_up(*experiment, replica)) {
      if (!held.contains({replica.id, replica.attempt})) replica.progress = Progress::Released;
      continue;
    }
    if (held.contains({replica.id, replica.attempt})) {
      keep_held(turn, *experiment, replica, started);
    } else {
      miss_held(turn, *experiment, replica, again);
    }
  }
  for (auto& [which, launch] : again) {
    if (experiment->outcome || experiment->phase == Phase::Ending) break;
    launch.host = host;
    launch.id = which;
    turn.send(std::move(launch));
  }
  settle(turn, *experiment, false);
  // A thousand replicas that just go on are no reason to write a thousand rows.
  turn.touched.at(id).save = before != *experiment;
}

// The inventory of a Hello, with what is known of the host besides.
Host& adopt(Turn& turn, const Host& said) {
  Host& host = turn.model.hosts[said.id];
  Host next = said;
  if (!host.connected) more_room_came(turn.model, turn.now);
  next.quarantined_ports = std::move(host.quarantined_ports);
  next.strays = std::move(host.strays);
  if (!host.id.hex.empty()) {
    next.leaving = host.leaving && !turn.model.revoked.contains(said.id);   // as another one, with another key
    next.kept_lane = std::move(host.kept_lane);
  }
  next.connected = true;
  next.last_contact_ms = turn.now;
  host = std::move(next);
  turn.refresh(host.id);
  turn.model.place_wanted = true;
  turn.model.revoked.erase(host.id);   // it has another key
  if (host.ends_ms != 0) turn.model.deadlines.insert({host.ends_ms - leaves_early_ms(host), ExperimentId{}});
  return host;
}

// What was given up without a lease might still have run: the next attempt waited for this.
void let_go(Turn& turn, const HostId& host, const HeldReplicaFact& fact) {
  Experiment* experiment = nullptr;
  Replica* replica = turn.touch_replica(
      host, fact.replica, fact.attempt, experiment,
      [](const Replica& r) { return r.lost && r.progress != Progress::Released; });
  if (replica == nullptr) return;
  replica->progress = Progress::Released;
  settle(turn, *experiment, false);
}

void lose(Turn& turn, Experiment& experiment, Replica& replica, const std::string& reason) {
  const bool start_was_sent =
      experiment.phase != Phase::Placed && replica.progress > Progress::Launched;
  const bool waited = awaits_relaunch(experiment, replica);
  if (!start_was_sent) replica.progress = Progress::Released;   // nothing of it can run
  if (start_was_sent || waited) replica.lost = true;
  if (replica.lost && replica.reason.empty()) replica.reason = reason;
  const bool had_exited = replica.exit.has_value();
  if (had_exited && replica.end) return;
  if (waited) {
    start_again_at_once(turn, experiment, reason);
    return;
  }
  if (!had_exited || experiment.phase == Phase::Go) judge_loss(turn, experiment, replica, reason);
}

void leave(Turn& turn, const HostLeaves& event, const std::vector<ExperimentId>& seated) {
  Host& host = *turn.host(event.host);
  if (host.leaving) return;
  host.leaving = true;
  turn.refresh(host.id);
  turn.model.place_wanted = true;   // who waited for it waits for something else
  for (const ExperimentId& id : seated) {
    Experiment* experiment = turn.touch(id);
    if (experiment == nullptr) continue;
    leave_host(turn, *experiment, event.host, event.reason);
    settle(turn, *experiment, false);
  }
}

std::set<ExperimentId> unfit_on(const Model& model, const HostId& host) {
  const auto known = model.unfit.find(host);
  return known == model.unfit.end() ? std::set<ExperimentId>() : known->second;
}

// It may have by now what it lacked.
void forget_unfitness(Turn& turn, const HostId& host, const std::set<ExperimentId>& concerned) {
  for (const ExperimentId& id : concerned) {
    Experiment* experiment = turn.touch(id);
    if (experiment == nullptr) continue;
    experiment->unfit_hosts->erase(host);
    if (experiment->unfit_hosts->empty()) experiment->unfit_hosts.reset();
    turn.touched.at(id).save = true;   // reconcile() may have found nothing else new
  }
}

}  // namespace

void on_connected(Turn& turn, const HostConnected& event) {
  Host& host = adopt(turn, event.host);
  const std::set<HeldReplicaFact> held(event.held.begin(), event.held.end());
  std::map<ExperimentId, SendStop> stops;
  host.strays.clear();
  for (const HeldReplicaFact& fact : held) {
    if (!is_stray(turn.model, host.id, fact)) continue;
    host.strays.insert(fact);
    if (turn.model.unreadable.contains(fact.replica.experiment.number)) continue;   // it goes on
    stops[fact.replica.experiment].replicas.push_back(fact);
  }
  std::vector<HostId> news{host.id};
  if (!host.pool.empty()) news.push_back(id_of_pool(host.pool));
  std::vector<std::set<ExperimentId>> unfit;   // touching takes them out
  for (const HostId& id : news) unfit.push_back(unfit_on(turn.model, id));
  for (const ExperimentId& id : seated_on(turn.model, host.id)) reconcile(turn, host.id, id, held);
  for (size_t i = 0; i < news.size(); ++i) forget_unfitness(turn, news[i], unfit[i]);
  for (auto& [id, stop] : stops) {
    turn.send(SendStop{host.id, id, std::move(stop.replicas), kStrayGraceMs,
                       "it belongs to no present attempt"});
  }
}

void on_disconnected(Turn& turn, const HostDisconnected& event) {
  Host* host = turn.host(event.host);
  if (host == nullptr || !host->connected) return;
  host->connected = false;
  if (host->same_machine) host->last_contact_ms = turn.now;
  turn.refresh(host->id);
  turn.model.place_wanted = true;   // without it, excluded hosts may count again
  look_for_lost(turn);
}

void on_revoked(Turn& turn, const HostRevoked& event) {
  const Host* host = turn.host(event.host);
  if (host == nullptr) return;
  turn.model.revoked.insert_or_assign(host->id, host->last_contact_ms);
  look_for_lost(turn);
}

void on_leaves(Turn& turn, const HostLeaves& event) {
  if (turn.host(event.host) != nullptr) leave(turn, event, seated_on(turn.model, event.host));
}

void on_drained(Turn& turn, const HostDrained& event) {
  if (event.drained) {
    turn.model.drained.insert(event.host);
  } else {
    turn.model.drained.erase(event.host);
  }
  if (turn.host(event.host) != nullptr) turn.refresh(event.host);
  turn.model.place_wanted = true;
}

void on_opened(Turn& turn, const HostOpened& event) {
  Host* host = turn.host(event.host);
  if (host == nullptr || host->kept_lane.empty()) return;
  host->kept_lane.clear();
  turn.model.place_wanted = true;
}

void find_leaving_hosts(Turn& turn) {
  std::vector<std::pair<HostLeaves, std::vector<ExperimentId>>> leaving;
  for (const auto& [id, host] : turn.model.hosts) {
    if (host.ends_ms == 0 || host.leaving) continue;
    const TimeMs at_ms = host.ends_ms - leaves_early_ms(host);
    if (at_ms > turn.now) {
      turn.model.deadlines.insert({at_ms, ExperimentId{}});
    } else {
      leaving.push_back({{id, fmt::format("the {} that {} was lent for are over",
                                          format_duration_ms(host.lasts_ms), host.name)},
                         seated_on(turn.model, id)});
    }
  }
  for (const auto& [event, seated] : leaving) leave(turn, event, seated);
}

void on_contact(Turn& turn, const HostContact& event) {
  Host* host = turn.host(event.host);
  if (host == nullptr) return;
  if (host->connected) host->last_contact_ms = turn.now;
  // Whoever had one may have ended since: a small range would be used up one day.
  const auto past = [&](const auto& port) { return port.second + turn.policy.port_quarantine_ms <= turn.now; };
  if (std::erase_if(host->quarantined_ports, past) == 0) return;
  turn.refresh(host->id);
  turn.model.place_wanted = true;
}

void on_changed(Turn& turn, const HostChanged& event) {
  const Host* known = turn.host(event.host.id);
  if (known == nullptr || !known->connected) return;
  adopt(turn, event.host);
}

void look_for_lost(Turn& turn) { turn.model.deadlines.insert({turn.now + 1, ExperimentId{}}); }

void find_lost_hosts(Turn& turn) {
  auto& deadlines = turn.model.deadlines;
  std::erase_if(deadlines, [&](const auto& deadline) {
    return deadline.first <= turn.now && deadline.second.number == 0;
  });
  std::map<HostId, std::vector<ExperimentId>> away;
  for (const auto& [id, host] : turn.model.hosts) {
    if (!host.connected) away[id] = seated_on(turn.model, id);
  }
  for (const auto& [id, seated] : away) {
    Host& host = turn.model.hosts.at(id);
    bool is_missed = host.is_missed;
    for (const ExperimentId& experiment_id : seated) {
      const Experiment& of = turn.model.experiments.at(experiment_id);
      const TimeMs gone_ms = host.last_contact_ms + lost_after_ms(host, of.spec(), turn.policy) + grace_after_lease_ms(of, id);
      if (gone_ms > turn.now) {
        deadlines.insert({gone_ms, ExperimentId{}});
        continue;
      }
      const auto is_lost = [&, &host_id = id](const Experiment& whose, const Replica& replica) {
        return replica.seat.host == host_id && !replica.lost && is_seated(whose, replica) && !waits_for_its_host(turn.model, whose, replica);
      };
      const Experiment& known = turn.model.experiments.at(experiment_id);
      const auto waits = [&, &host_id = id](const Replica& replica) {
        return replica.seat.host == host_id && waits_for_its_host(turn.model, known, replica);
      };
      if (!host.is_missed && !known.is_shared() && std::ranges::any_of(known.replicas, waits)) {   // of one that is shared the name is the set's
        is_missed = true;
        turn.effects.notify.push_back(
            {experiment_id, std::nullopt, state_of(known), waits_for(known, turn.model, turn.now), std::nullopt, known.attempt});
      }
      if (std::ranges::none_of(known.replicas, [&](const Replica& replica) { return is_lost(known, replica); })) continue;
      Experiment* experiment = turn.touch(experiment_id);
      if (experiment == nullptr) continue;
      for (Replica& replica : experiment->replicas) {
        if (is_lost(*experiment, replica)) lose(turn, *experiment, replica, fmt::format("lost with {}", host.name));
      }
      settle(turn, *experiment, false);
    }
    host.is_missed = is_missed;
  }
}

void on_stray_unprepared(Turn& turn, const HostId& id, const LaunchId& launch) {
  Host* host = turn.host(id);
  if (host == nullptr) return;
  for (const HeldReplicaFact& fact : std::set<HeldReplicaFact>(host->strays)) {
    if (launch_of(fact.replica, fact.attempt) != launch) continue;
    host->strays.erase(fact);
    turn.refresh(id);
    turn.model.place_wanted = true;
    let_go(turn, id, fact);
  }
}

void on_stray_released(Turn& turn, const ReplicaReleased& event) {
  Host* host = turn.host(event.host);
  if (host == nullptr) return;
  const HeldReplicaFact fact{event.replica, event.attempt};
  if (host->strays.erase(fact) > 0) {
    turn.refresh(event.host);
    turn.model.place_wanted = true;
  }
  let_go(turn, event.host, fact);
  // How it ended is for a daemon that can read what it belongs to.
  if (turn.model.unreadable.contains(event.replica.experiment.number)) return;
  turn.send(SendForget{event.host, event.replica.experiment, {fact}});
}

void stop_unreadable(Turn& turn, uint32_t number, bool force) {
  for (const auto& [id, host] : turn.model.hosts) {
    std::map<ExperimentId, SendStop> stops;
    for (const HeldReplicaFact& fact : host.strays) {
      if (fact.replica.experiment.number == number) stops[fact.replica.experiment].replicas.push_back(fact);
    }
    for (auto& [experiment, stop] : stops) {
      turn.send(SendStop{id, experiment, std::move(stop.replicas), force ? 0 : kStrayGraceMs, "killed"});
      turn.refresh(id);
    }
  }
}

}  // namespace dtrain::daemon
