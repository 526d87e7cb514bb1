// What one step works with, and the few moves the rules are written in. Inside the pure core only.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "daemon/lifecycle.h"

namespace dtrain::daemon {

// One step under way. An experiment is taken out of everything derived when a rule first touches it
// and put back, from its facts, when the turn ends; so what is derived can't drift from the facts.
struct Turn {
  Turn(Model& the_model, const Policy& the_policy, TimeMs at)
      : model(the_model), policy(the_policy), now(at) {}

  Model& model;
  const Policy& policy;
  const TimeMs now;
  Effects effects;

  // Null when unknown or over: then nothing may happen to it.
  Experiment* touch(const ExperimentId& named);
  // The replica that `host` has in that very attempt, its experiment touched; null, and nothing
  // touched, when there is none, its experiment is over, or `concerns` says that the message is no
  // news.
  Replica* touch_replica(const HostId& host, const ReplicaId& id, uint32_t attempt,
                         Experiment*& experiment, bool (*concerns)(const Replica&));
  Host* host(const HostId& id);   // null when unknown
  void refresh(const HostId& id) { stale_hosts.insert(id); }   // its inventory or its strays changed
  void send(Send message);        // dropped when the host is not connected: its Hello brings it all up
  Effects finish();
  void put_back();                // all that is touched
  void forget_revoked();

  // ---- kept by touch() for finish()
  struct Before {
    State state;
    uint32_t failed_before = 0;   // starts, before the one that it is about, or is in the middle of
    std::vector<std::pair<ReplicaId, State>> replicas;
    std::vector<bool> seats_held;
    bool save = true;             // false: looked at, and found as it was
    std::string notice;           // said with the next change of the experiment's state

    // Null: there was none of that name. It is mostly where it was.
    const State* state_of(const ReplicaId& id, size_t likely) const {
      if (likely < replicas.size() && replicas[likely].first == id) return &replicas[likely].second;
      for (const auto& [known, state_then] : replicas) {
        if (known == id) return &state_then;
      }
      return nullptr;
    }
  };
  std::map<ExperimentId, Before> touched;
  std::set<ExperimentId> saved;   // of those that may be touched again after
  std::vector<ExperimentId> ended;   // of what was put back
  std::set<uint32_t> perhaps_begin;  // who waited for one that has ended
  std::set<HostId> stale_hosts;
  std::map<uint32_t, State> set_states;   // of sets with a touched member, before
};

// Of starts that fail in a row each is shown until there are so many, and then whenever they are twice as many as when one
// last was: who never gets through would write events for ever.
inline constexpr uint32_t kFailedStartsShown = 8;
bool is_shown_try(uint32_t failed_before);   // the one after so many that failed

// Everything derived about one experiment, out of and into the model.
void unindex(Model& model, const Experiment& experiment);
void index(Model& model, const Experiment& experiment);
// A host has come, or a seat is free: there may soon be more, for what ends together does so one after the other.
void more_room_came(Model& model, TimeMs now);
// One that is not touched is held back no more by its set's concurrency, or by others.
void hold_no_more(Turn& turn, Experiment& experiment, bool Experiment::* held);
// What is live of an experiment, or of a whole set (member 0).
std::vector<ExperimentId> live_of(const Model& model, const ExperimentId& id);
// When something is to happen to it by itself; 0: never.
TimeMs deadline_of(const Experiment& experiment);

// ---- lifecycle_outcome.cc: what an exit means

std::string cause_of(const Exit& exit);
void judge_exit(Turn& turn, Experiment& experiment, Replica& replica);
// Gone without an exit of its own: with its host, or unknown to the runner that held it.
void judge_loss(Turn& turn, Experiment& experiment, Replica& replica, const std::string& reason);
void fix_outcome(Turn& turn, Experiment& experiment, State state, const Replica* cause,
                 const std::string& reason);
// The one way a replica gets its end once the experiment's outcome is fixed.
void conclude(const Experiment& experiment, Replica& replica);
// Its max-duration has passed.
void end_overdue(Turn& turn, Experiment& experiment);
// All of them, for they print nothing any more.
void end_for_silence(Turn& turn, Experiment& experiment);
// Nothing is left of an attempt that ends with a failure: another one follows, or the outcome is fixed.
void judge_ended_attempt(Turn& turn, Experiment& experiment);
// Something of ours failed before everyone had started: another attempt, at no cost to the user.
void start_failed(Turn& turn, Experiment& experiment, const HostId& host, const std::string& reason);
int64_t count_failed_start(const Turn& turn, Experiment& experiment);   // how long to wait then
void start_again_at_once(Turn& turn, Experiment& experiment, const std::string& reason);
// Elsewhere, at no cost either; or its end, when there is nowhere else.
void leave_unfit_host(Turn& turn, Experiment& experiment, Replica& replica);
// That host is taken away. What can be done without there is ended alone; else all of it is begun again on others, if it
// may be restarted at all, at no restart of its limit.
void leave_host(Turn& turn, Experiment& experiment, const HostId& host, const std::string& reason);
bool must_stop(const Experiment& experiment, const Replica& replica, TimeMs now);
// Whether a new attempt may follow when a host is lost. An elastic gang makes do with the hosts that are left, at no
// restart of its limit.
bool may_restart(const Spec& spec);
// That its launches on other machines have: 0 is none, for what is only waited for.
int64_t lease_ms_of(const Spec& spec, const Policy& policy);

// ---- lifecycle_launch.cc: from a place to RUNNING

void launch_gang(Turn& turn, Experiment& experiment, std::vector<Seat> seats);
void launch_again(Turn& turn, Experiment& experiment, Replica& replica);
// Once all of its builds have succeeded.
void launch_when_built(Turn& turn, Experiment& experiment);
void on_prepared(Turn& turn, const LaunchPrepared& event);
void on_launch_failed(Turn& turn, const LaunchFailed& event);
void on_started(Turn& turn, const ReplicaStarted& event);

// ---- lifecycle_hosts.cc: hosts that come, go and are lost

void on_connected(Turn& turn, const HostConnected& event);
void on_disconnected(Turn& turn, const HostDisconnected& event);
void on_revoked(Turn& turn, const HostRevoked& event);
void on_leaves(Turn& turn, const HostLeaves& event);
void on_drained(Turn& turn, const HostDrained& event);
void on_opened(Turn& turn, const HostOpened& event);
void on_contact(Turn& turn, const HostContact& event);
void on_changed(Turn& turn, const HostChanged& event);
void find_lost_hosts(Turn& turn);
void look_for_lost(Turn& turn);   // once this turn is over: what waited for a host that is away may not any more
void find_leaving_hosts(Turn& turn);
// Held by the host and wanted by nobody.
void on_stray_released(Turn& turn, const ReplicaReleased& event);
// The same of a launch that the host was told to stop and then keeps nothing of: it can't say Released.
void on_stray_unprepared(Turn& turn, const HostId& id, const LaunchId& launch);
// What hosts hold of one that was in `Model::unreadable`, and is given up.
void stop_unreadable(Turn& turn, uint32_t number, bool force);

// ---- lifecycle.cc

// What follows from the facts of an experiment, whatever event led to them.
void settle(Turn& turn, Experiment& experiment, bool force);
Replica* find_replica(Experiment& experiment, const ReplicaId& id, uint32_t attempt);

}  // namespace dtrain::daemon
