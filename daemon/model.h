// What the daemon knows: plain data, no behaviour beyond deriving states. Everything here is either
// an experiment's facts (durable, one row each) or a host as it is now (rebuilt from Hello).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/placement_free.h"
#include "daemon/queue_order.h"
#include "daemon/rare.h"
#include "schema/cluster_env.h"
#include "schema/expand.h"
#include "schema/ids.h"
#include "schema/spec.h"
#include "schema/states.h"

namespace dtrain::daemon {

using TimeMs = int64_t;  // CLOCK_BOOTTIME; an argument, never asked for here

struct Gpu {
  int index = 0;
  std::string name;
  std::string busy;  // who else uses it; empty: free for us
  int numa_node = -1;   // to which of the host's memories and processors it is near; -1: not known, or there is one
  bool operator==(const Gpu&) const = default;
};

// A replica's launch as both sides name it.
struct HeldReplicaFact {
  ReplicaId replica;
  uint32_t attempt = 0;
  auto operator<=>(const HeldReplicaFact&) const = default;
};

struct Host {
  HostId id;
  std::string name;
  std::string address;
  double cpus = 0;
  uint64_t memory_bytes = 0;
  std::vector<Gpu> gpus;
  std::vector<std::string> labels;
  int port_first = 20'000;
  int port_last = 29'999;
  bool connected = false;
  bool caps_cpus = true;      // it can keep `limits: {cpus: hard}`
  bool caps_memory = true;
  bool same_machine = false;  // shares a boot id with the daemon: no lease needed
  std::string pool;           // that it came from; empty: it is there for good, or somebody brings and ends it
  bool potential = false;     // not there: one that its pool may bring
  int64_t lasts_ms = 0;       // from first to last, where that is known; 0: it stays
  TimeMs ends_ms = 0;         // when it does; 0: it stays
  bool leaving = false;       // nothing more is placed there, and what is there is ended
  bool is_missed = false;     // those who wait for it, however long it is away, were told so
  std::string kept_lane;      // others than those of that lane (queue.h) are not placed there; mostly empty
  TimeMs last_contact_ms = 0;
  std::map<int, TimeMs> quarantined_ports;  // found taken by a stranger, and when
  // What it holds and nobody wants any more: being stopped. What it used is known to its runner only,
  // so nothing is placed here until the last of them is released.
  std::set<HeldReplicaFact> strays;
};

// Where hosts come from when what is there does not do: somebody else's scheduler, asked for so many at most
// of that size, each time for so long.
struct Pool {
  std::string name;
  double cpus = 0;
  uint64_t memory_bytes = 0;
  int gpus = 0;
  int hosts_max = 0;
  int64_t lasts_ms = 0;
};

// What the experiments of one user may have at once (quota.h); what is left out is not limited.
struct Quota {
  std::string user;   // empty: each user that no quota before is for
  std::optional<double> cpus;
  std::optional<uint64_t> memory_bytes;
  std::optional<int> gpus;
};

// How much of what there is somebody is to have beside others (fair_share.h).
struct Weight {
  std::string user;   // empty: each user that no weight before is for
  double weight = 1;
};

// Of one user; what the members of a set share is in neither.
struct UserHas {
  Room counted;       // by quotas, and by shares
  Room preemptible;
};

// Of the experiment's newest gang. Building: it has its seats, and on each of its hosts a build makes
// what it runs in before anything of it is launched. Ending: the attempt is over, and once everything of it is released
// another one follows, or what it failed by is judged.
enum class Phase { None, Placed, Go, Ending, Building };

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
  std::vector<std::pair<uint32_t, std::string>> printed = {};   // by rule of the failure-policy, from 0: the first line that fits
  bool ended_for_line = false;   // for one of these: a failure whatever its code is
  bool operator==(const Exit&) const = default;
};

struct Replica {
  ReplicaId id;
  uint32_t attempt = 0;  // of its newest launch; another number in a message changes nothing
  Seat seat;
  int64_t lease_ms = 0;  // of its newest launch: its keeper ends it that long after the last renewal
  Progress progress = Progress::None;
  bool lost = false;          // its host is gone past the lease, or came back without it
  std::optional<Exit> exit;   // of its newest launch
  std::optional<State> end;   // how it ended, once that is settled: Finished, Failed, Killed, Lost
  std::string reason;         // "ended with the experiment", "exit code 3"
  uint64_t started_unix_ms = 0;
  uint64_t pid = 0;
  bool stop_sent = false;     // to the host's present stream; memory only
  bool leaves = false;        // ended alone, for its host leaves; memory only: the host will say so again
  bool operator==(const Replica&) const = default;
};

inline constexpr int kKilledCode = 130;   // that of Ctrl-C in a shell

struct Outcome {
  State state = State::Finished;   // Finished, Failed or Killed
  int exit_code = 0;               // as `dtrain train` returns it
  std::optional<ReplicaId> cause;
  std::string reason;
  TimeMs at_ms = 0;                // when it was fixed
  bool early = false;              // a rule of its set ended it: Finished, and what it was doing is not waited for
  bool with_set = false;           // somebody killed its whole set
  std::optional<ReplicaId> printer = {};   // whose words the failure-policy went by, where that is not the cause
  bool operator==(const Outcome&) const = default;
};

// Of an attempt that ends with it. What it means is judged once nothing is left of the attempt: the others' last words count.
struct Failure {
  std::optional<ReplicaId> cause;   // none: all of them, by their silence
  std::string what;                 // "exit code 3"
  bool operator==(const Failure&) const = default;
};

// What all members of a set (or the one experiment) have in common.
struct Submission {
  uint32_t number = 0;
  std::string submission_id;
  std::string spec_yaml;
  Spec spec;  // with its grid
  std::vector<Spec> shapes;  // shapes_of(spec)
  std::string snapshot;  // 32 bytes
  std::string user;
  std::string project_dir;
  std::string host;  // `hosts` of the YAML as is_wanted() takes them; empty: anywhere
  uint64_t submitted_unix_ms = 0;

  // What a member is placed as.
  const Spec& spec_of(uint32_t member) const {
    return shapes.empty() ? spec : shapes[shape_of(spec, member)];
  }
  // Its experiments are {number, first_member()} to {number, last_member()}. Of a set 0 is what the
  // members share, a TensorBoard.
  uint32_t first_member() const { return spec.is_set() && !has_shared() ? 1 : 0; }
  uint32_t last_member() const {
    return spec.is_set() ? static_cast<uint32_t>(spec.member_count()) : 0;
  }
  bool has_shared() const { return !shapes.empty() && !shapes.front().roles.empty(); }
};

// What travels with a submission apart from its Spec.
struct SubmissionExtras {
  std::map<std::string, std::string> secrets;  // never shown, never logged
  std::map<std::string, std::string> user_env;
  bool rebuild = false;  // an environment made for an earlier one doesn't count
};

// An experiment, a member of a set, or what the members of a set share. 200,000 queued ones must fit
// in memory: what only a placed one needs lives in vectors that stay empty until then.
struct Experiment {
  ExperimentId id;
  std::shared_ptr<const Submission> submission;
  uint32_t attempt = 0;        // raised by every launch but those of builds
  uint32_t build_attempt = 0;  // by every one of those
  Phase phase = Phase::None;
  bool stop_forced = false;        // a person asked to end it without grace
  bool held = false;               // back by its set's `concurrency`, with nothing placed; stored once it had its turn
  bool suspended = false;          // a person does not want it placed; then its phase is None or Ending
  bool awaits = false;             // others have to end before it is placed (dependencies.h); not stored
  bool over = false;               // terminal: outcome fixed, all released
  Rare<Outcome> outcome;           // fixed once, never changed
  Rare<Failure> failure;           // with Phase::Ending and without an outcome: what the next phase depends on
  // Spec order, the decider first, then the builds, one a host; empty until first placed.
  std::vector<Replica> replicas;
  uint32_t restarts_used = 0;
  uint32_t start_failures = 0;     // in a row, ours; since all were last started
  uint32_t placed_after = 0;       // so many, when it got the place that it has
  std::vector<HostId> excluded_hosts;   // where starts failed, or that a failure-policy blames; the latest is last
  Rare<std::map<HostId, std::string>> unfit_hosts;   // and what each lacks; none: no map either
  std::string wait_reason;         // why it was last not placed, or is restarted; not stored
  TimeMs not_before_ms = 0;        // restart backoff; 0: none
  Rare<ExperimentId> gave_way_to;  // lost its place to that one (preemption.h); until it has another
  TimeMs preempts_from_ms = 0;     // before, nobody else gives way to it; not stored
  TimeMs heard_ms = 0;             // when somebody of it last printed something; only where silence matters; not stored
  TimeMs silence_due_ms = 0;       // when it is looked at for that (failure_rules.h); 0: not yet; not stored
  bool silence_confirmed = false;  // it was silent when that was last done, and its hosts were not; not stored
  TimeMs grows_from_ms = 0;        // before, an elastic gang takes no more workers; 0: no matter
  bool regrows = false;            // it is begun again for more of them, and has no place yet; not stored: see growth.h
  Rare<std::vector<double>> costs; // its metric where its set looked at it (set_rules.h); less is better
  TimeMs run_since_ms = 0;         // first start, for max-duration; 0: not yet; negative: before this boot
  uint64_t started_unix_ms = 0;
  uint64_t finished_unix_ms = 0;   // the newest exit of this attempt; over without one: the commit

  const Spec& spec() const { return submission->spec_of(id.member); }
  bool is_shared() const { return id.member == 0 && submission->has_shared(); }
  bool operator==(const Experiment&) const = default;
};

// Stands for every host that the pool brings, where something is known of all of them.
HostId id_of_pool(const std::string& pool);
// As the pool would bring it, the `number`th of many.
Host potential_host(const Pool& pool, int number);
// So long before its time is over what is there begins to be ended.
int64_t leaves_early_ms(const Host& host);

// As it is submitted: nothing has happened to it yet.
Experiment first_state(const std::shared_ptr<const Submission>& submission, uint32_t member);

std::string suspended_text(const ExperimentId& id);   // until when, for people

State state_of(const Experiment& experiment);
State state_of(const Experiment& experiment, const Replica& replica);
// Of a whole set, from its members: terminal once all are; Finished if any member is.
State set_state(const std::vector<const Experiment*>& members);

// The replicas an experiment has or will have, in Spec order.
std::vector<ReplicaId> replica_ids(const ExperimentId& id, const Spec& spec);

// The facts the rules are made of.
bool is_build(const Replica& replica);
LaunchId launch_of(const Replica& replica);   // its newest
bool is_shown(const Replica& replica);   // not a build that has not begun, or that found all made
const Replica& decider(const Experiment& experiment);   // only when it has replicas
const RoleSpec& role_of(const Experiment& experiment, const Replica& replica);
bool is_failure(const Exit& exit);
int exit_status(const Exit& exit);                      // 128+signal, else its code; never 0 for a failure
bool is_gone(const Replica& replica);                   // released, or lost with its host
bool is_alive(const Replica& replica);                  // launched, and not known to have exited
bool start_committed(const Experiment& experiment, const Replica& replica);  // Start may have been sent
bool all_started(const Experiment& experiment);
bool awaits_relaunch(const Experiment& experiment, const Replica& replica);
bool holds_seat(const Experiment& experiment, const Replica& replica);
bool holds_any_seat(const Experiment& experiment);
bool wants_place(const Experiment& experiment);         // unplaced; nothing holds it back, nor has it ended

bool is_queued(const Experiment& experiment);           // and its backoff is over
// Something of the replica may be on the host of its seat, or will be again.
bool is_seated(const Experiment& experiment, const Replica& replica);

struct Model;
bool can_be_stopped(const Model& model, const Experiment& experiment);   // not one that has a host that is away

// The members of a set, counted.
struct SetTally {
  uint32_t members = 0;
  uint32_t by_state[12] = {};     // indexed by State
  uint32_t placed = 0;            // ever
  uint32_t begun = 0;             // ever: a process of theirs was started
  uint32_t killed_with_set = 0;
  uint32_t most_failed = 0;       // as max-failed says
  uint32_t in_slots = 0;          // in the queue or placed, and not over: they use up `concurrency`
  bool shared_lives = false;      // what they share is not over: it ends after them
  std::set<ExperimentId> held;    // back by `concurrency`
  std::vector<std::vector<double>> costs;   // of all members that came so far, sorted, for each time that they are looked at
};
State set_state(const SetTally& tally);
void count_member(SetTally& tally, const Experiment& member, uint32_t by);   // modulo 2^32

struct Model {
  Model() = default;
  Model(Model&&) = default;
  Model& operator=(Model&&) = default;
  Model(const Model&) = delete;   // `free` points into `hosts`
  Model& operator=(const Model&) = delete;

  std::map<ExperimentId, Experiment> experiments;  // ordered: member lists are ranges
  std::map<HostId, Host> hosts;   // and those that a pool may bring
  std::map<std::string, Pool> pools;   // by name; never changed once something is here
  std::vector<Quota> quotas;           // the first that is for a user counts; likewise
  std::vector<Weight> fair_share;      // likewise; none: whoever came first is first
  std::map<ExperimentId, std::string> asked;   // what was asked of a pool for whom; not stored
  std::set<HostId> drained;   // nothing more is placed there until somebody says otherwise; also of those not seen yet
  // Whose key is, and when each was last heard of. Forgotten once they are away and nothing of them is awaited.
  std::map<HostId, TimeMs> revoked;
  // Numbers that this daemon can't read what is stored of. They live, but nothing is in `experiments`: what hosts hold of
  // them is left alone, until a kill gives them up.
  std::set<uint32_t> unreadable;

  // Derived, kept for speed, checked against the facts by the simulation after each step.
  std::set<ExperimentId> live;  // not over
  std::set<std::pair<TimeMs, ExperimentId>> deadlines;  // experiment 0: some host may be lost by then, or what waits is to be looked at
  std::map<HostId, std::set<ExperimentId>> seated;      // whose replicas may still be on that host
  std::map<HostId, std::set<ExperimentId>> unfit;       // who can't use that host
  std::map<uint32_t, SetTally> sets;                    // only of real sets
  std::set<QueueOrder> growing;      // elastic gangs that would have more workers, and whose time has come (growth.h)
  std::set<QueueOrder> returning;    // whose attempt ends, or who wait before the next one: in no lane yet
  std::set<QueueOrder> regrowing;    // who are begun again for more workers, from when they are stopped until they have a place
  size_t preemptible_live = 0;       // of all that are not over, those that may give way once they have a place
  std::set<QueueOrder> preemptible;  // who have a place, and may lose it to those of higher priority (preemption.h)
  std::map<ExperimentId, std::vector<ExperimentId>> giving_way;   // for whom, and who: in order
  std::set<ExperimentId> ending;     // who have their outcome or are between attempts, and still have some of their place
  std::map<ExperimentId, std::set<uint32_t>> awaited;   // the numbers of what waits for its end
  FreeHosts free;
  std::map<std::string, UserHas> users;   // who has something
  Queue queue;
  bool place_wanted = false;  // a placing pass is due
  TimeMs hosts_awaited_until_ms = 0;   // after a restart others may come back than are known by then
  // Before, more room may be there soon, since hosts come back or others end: no elastic gang begins with fewer workers
  // than it asks for, nor is begun again for a few more.
  TimeMs elastic_from_ms = 0;
  TimeMs room_came_ms = 0;             // the first that came since a pass found that no more does
  bool room_settled = true;            // such a pass has been, and no room has come since
  TimeMs preempt_next_ms = 0;          // when it is next asked who could give way
  QueueOrder preempt_asked;            // for whom last, where more were to be asked for
  uint64_t preempt_round_began = 0;    // what `changes` was when the first of them was
  uint64_t changes = 0;                // of experiments and hosts, counted
  TimeMs grow_next_ms = 0;             // when it is next asked who could grow
  QueueOrder grow_looked_at;           // who was asked last
};

}  // namespace dtrain::daemon
