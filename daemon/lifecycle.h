// The life of an experiment as a pure function: step(model, event, now) -> effects.
//
// No I/O, no clock, no randomness. The caller (scheduler.h) commits what `persist` names, and only then
// sends and notifies: accepted means durable.
//
// lifecycle.cc is the table: which event does what, and what follows from the facts. Its parts:
// lifecycle_outcome.cc (what an exit means), lifecycle_launch.cc (Placed, Prepared, Go, Started),
// lifecycle_hosts.cc (Hello, lost hosts), set_rules.cc (what a set's search ends), lifecycle_turn.cc (what a turn leaves
// behind).
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "daemon/model.h"

namespace dtrain::daemon {

// ---- events

// Durable before this event: the submission itself. Its experiments are in their first state.
struct Submitted { std::shared_ptr<const Submission> submission; };
struct KillWanted { ExperimentId id; bool force = false; std::string by = {}; };   // member 0 of a set: every member; by whom, empty: not known
// Likewise. What it has placed ends in order, and it is placed again once somebody says so.
struct SuspendWanted { ExperimentId id; bool suspended = true; };
struct HostConnected { Host host; std::vector<HeldReplicaFact> held; };   // Hello
struct HostDisconnected { HostId host; };
struct HostRevoked { HostId host; };                                      // it can't come back
// Its time there is over before long: nothing more is placed there, and what is there is ended for that reason.
struct HostLeaves { HostId host; std::string reason; };
// Nothing more is placed there, or something is again; what is there goes on. Durable before this event.
struct HostDrained { HostId host; bool drained = true; };
// It is kept for nobody any more.
struct HostOpened { HostId host; };
struct HostContact { HostId host; };                                      // a renewal was answered
struct HostChanged { Host host; };                                        // new inventory
// `cached`: of a build that found all made; then the host keeps nothing of the launch.
struct LaunchPrepared {
  HostId host;
  LaunchId launch;
  bool cached = false;
};
// The runner could not prepare and keeps nothing of the launch: it counts as released.
struct LaunchFailed {
  HostId host;
  LaunchId launch;
  std::string reason;
  int port_taken = 0;
  bool ours = true;
  bool unfit = false;   // the host lacks what the experiment names by path; `reason` says what
};
// What a host says of a replica counts only of one that it was given. Nothing is taken on trust:
// hosts may be broken.
struct ReplicaStarted {
  ReplicaId replica;
  uint32_t attempt = 0;
  uint64_t pid = 0;
  uint64_t unix_ms = 0;
  HostId host;
};
struct ReplicaExited {
  ReplicaId replica;
  uint32_t attempt = 0;
  Exit exit;
  HostId host;
};
// Of a stale launch too: then `host` is only told to forget it.
struct ReplicaReleased {
  ReplicaId replica;
  uint32_t attempt = 0;
  std::string left_behind;
  HostId host;
};
// Some of the experiment's gang have written something. Of interest where its failure-policy has a rule about silence.
struct OutputCame { ExperimentId experiment; };
// A member's metric had that value, its best until then, where its set looks at it for the `rung`th time, from 0.
struct RungReached {
  ExperimentId experiment;
  uint32_t rung = 0;
  double value = 0;
};
// What was asked of a pool for whom waits, or why it can't be; empty: nothing any more.
struct PoolAsked { ExperimentId experiment; std::string what; bool is_news = true; };
struct Tick {};   // the earliest of model.deadlines has passed

using Event = std::variant<Submitted, KillWanted, SuspendWanted, HostConnected, HostDisconnected, HostRevoked, HostLeaves, HostDrained,
                           HostOpened, HostContact, HostChanged, LaunchPrepared, LaunchFailed, ReplicaStarted, ReplicaExited,
                           ReplicaReleased, OutputCame, RungReached, PoolAsked, Tick>;

// ---- effects

struct SendLaunch { HostId host; LaunchId id; std::vector<ReplicaId> replicas; };
struct SendStart { HostId host; LaunchId id; };
struct SendStop {
  HostId host;
  ExperimentId experiment;
  std::vector<HeldReplicaFact> replicas;
  int64_t grace_ms = 0;
  std::string reason;
};
struct SendForget { HostId host; ExperimentId experiment; std::vector<HeldReplicaFact> replicas; };
using Send = std::variant<SendLaunch, SendStart, SendStop, SendForget>;

// A state that a person sees changed; copied into the experiment's journal.
struct StateChange {
  ExperimentId experiment;            // {N, 0} of a set: the set as a whole
  std::optional<ReplicaId> replica;   // empty: the experiment itself
  State state = State::Created;
  std::string reason;
  std::optional<int> exit_code;
  uint32_t attempt = 0;
  std::optional<ReplicaId> printer = {};   // of its outcome
};

struct Effects {
  std::vector<ExperimentId> persist;   // rows to write; unique
  std::vector<Send> send;              // in order
  std::vector<StateChange> notify;     // in order
  uint64_t gave_way = 0;               // so many did for others (preemption.h)
};

struct Policy {
  int64_t lease_ms = 600'000;          // for hosts on other machines
  int64_t lease_margin_ms = 30'000;    // past the lease and the stop-grace, for clocks that are late
  int64_t local_grace_ms = 60'000;     // for a runner on this machine to come back
  int64_t start_retry_ms = 1'000;      // before the next attempt after a start that failed through us
  uint32_t start_failures_per_host = 3;   // then others go first; the wait doubles after as many
  int64_t port_quarantine_ms = 600'000;   // before a port that a stranger had is tried again
};

// Applies one event. Unknown ids and stale attempts change nothing and produce nothing, except that a
// host which holds something the model does not want gets SendStop or SendForget for it.
Effects step(Model& model, const Event& event, const Policy& policy, TimeMs now);

// One placing pass: places what fits in queue order (placing_pass.h). Call when model.place_wanted, after the events of one
// loop turn; it may want another one, where somebody ended. Why others wait: wait_reason.h.
Effects place_pending(Model& model, const Policy& policy, TimeMs now);

// Of a new model: where more hosts may come from.
void add_pool(Model& model, const Pool& pool);

// After a restart, with the experiments loaded from the store: rebuilds what is derived. Hosts follow
// with HostConnected; one that does not come back is lost as if it had been in touch until now.
void rebuild(Model& model, TimeMs now);

}  // namespace dtrain::daemon
