// What the daemon knows: plain data, no behaviour beyond deriving states. Everything here is either
// an experiment's facts (durable, one row each) or a host as it is now (rebuilt from Hello).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "schema/cluster_env.h"
#include "schema/ids.h"
#include "schema/spec.h"
#include "schema/states.h"

namespace dtrain::daemon {

using TimeMs = int64_t;   // CLOCK_BOOTTIME; an argument, never asked for here

struct Gpu {
  int index = 0;
  std::string name;
  std::string busy;          // who else uses it; empty: free for us
};

struct Host {
  HostId id;
  std::string name;
  std::string address;
  double cpus = 0;
  uint64_t memory_bytes = 0;
  std::vector<Gpu> gpus;
  int port_first = 20'000;
  int port_last = 29'999;
  bool connected = false;
  bool same_machine = false;         // shares a boot id with the daemon: no lease needed
  TimeMs last_contact_ms = 0;
  std::set<int> quarantined_ports;   // found taken by a stranger
};

enum class Phase { None, Placed, Go };   // of the experiment's newest gang launch

// How far a replica's newest launch got. Only ever grows within an attempt.
enum class Progress { None, Launched, Prepared, Started, Exited, Released };

struct Exit {
  int code = 0;
  int signal = 0;
  bool memory_kill = false;
  bool lost_keeper = false;
  std::string cause;
  uint64_t unix_ms = 0;
  double cpu_seconds = 0;
  uint64_t memory_peak_bytes = 0;
  uint64_t read_bytes = 0;
  uint64_t written_bytes = 0;
};

struct Replica {
  ReplicaId id;
  uint32_t attempt = 0;       // of its newest launch; another number in a message changes nothing
  Seat seat;
  Progress progress = Progress::None;
  bool lost = false;          // its host is gone past the lease
  std::optional<Exit> exit;
  std::optional<State> end;   // how it ended, once that is settled: Finished, Failed, Killed, Lost
  std::string reason;         // "ended with the experiment", "exit code 3"
  uint64_t started_unix_ms = 0;
  uint64_t pid = 0;
};

struct Outcome {
  State state = State::Finished;    // Finished, Failed or Killed
  int exit_code = 0;                // as `dtrain train` returns it
  std::optional<ReplicaId> cause;
  std::string reason;
  TimeMs at_ms = 0;                 // when it was fixed
};

// What all members of a set (or the one experiment) have in common.
struct Submission {
  uint32_t number = 0;
  std::string submission_id;
  std::string spec_yaml;
  Spec spec;                  // with its grid
  std::string snapshot;       // 32 bytes
  std::string user;
  std::string project_dir;
  std::string host;           // --host: a host's name or id; empty: anywhere
  uint64_t submitted_unix_ms = 0;
};

// An experiment or a member of a set. 200,000 queued ones must fit in memory: what only a placed one
// needs lives in vectors that stay empty until then.
struct Experiment {
  ExperimentId id;
  std::shared_ptr<const Submission> submission;
  uint32_t attempt = 0;                 // raised by every launch
  Phase phase = Phase::None;
  bool stop_wanted = false;             // a person asked to kill it
  std::optional<Outcome> outcome;       // fixed once, never changed
  std::vector<Replica> replicas;        // empty until first placed
  uint32_t restarts_used = 0;
  uint32_t start_failures = 0;          // in a row, ours
  std::vector<HostId> excluded_hosts;
  std::string wait_reason;              // why it is not placed; derived, not stored
  TimeMs not_before_ms = 0;             // restart backoff
  TimeMs run_since_ms = 0;              // for max-duration
  uint64_t started_unix_ms = 0;
  uint64_t finished_unix_ms = 0;
  bool over = false;                    // terminal: outcome fixed, all released
};

State state_of(const Experiment& experiment);
State state_of(const Experiment& experiment, const Replica& replica);
// Of a whole set, from its members: terminal once all are; Finished if any member is.
State set_state(const std::vector<const Experiment*>& members);

// The replicas an experiment has or will have, in Spec order.
std::vector<ReplicaId> replica_ids(const ExperimentId& id, const Spec& spec);

struct Model {
  std::map<ExperimentId, Experiment> experiments;                  // ordered: member lists are ranges
  std::map<HostId, Host> hosts;
  // Derived, kept for speed, checked against the facts by the simulation after each step.
  std::set<ExperimentId> live;              // not over
  std::set<std::pair<TimeMs, ExperimentId>> deadlines;
  bool place_wanted = false;                // a placing pass is due
};

}  // namespace dtrain::daemon
