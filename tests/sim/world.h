// One simulated cluster: a daemon that remembers only what it committed, fake hosts, virtual time,
// a seed. Every step does one thing that can happen, then everything that must always hold is
// checked.
//
// world.cc is the daemon around the pure core, as scheduler.cc and runner_api.cc are;
// world_events.cc what may happen; world_checks.cc and world_outcomes.cc what must hold.
#pragma once

#include <fmt/format.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "daemon/lifecycle.h"
#include "daemon/placement.h"
#include "sim/fake_host.h"

namespace dtrain::sim {

// A broken promise; what() says which.
struct Broken : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class World {
 public:
  // `traced`: remember what happened, to be told when a promise is broken.
  World(uint64_t seed, bool traced);
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  void step();
  // No more faults, no more work: everything must come to its end.
  void quiesce();
  const std::deque<std::string>& trace() const { return trace_; }
  uint64_t steps() const { return steps_; }
  Counts counts() const;

 private:
  // ---- the daemon around the pure core

  // Decided and not yet committed: it dies with the daemon.
  struct Waiting {
    std::set<ExperimentId> rows;
    std::vector<daemon::Send> send;
    std::vector<daemon::StateChange> notify;
    std::vector<ExperimentId> killed;  // answered once this is committed
    bool empty() const { return rows.empty() && send.empty() && notify.empty(); }
  };
  void happen(const daemon::Event& event);
  void keep(daemon::Effects effects);
  void end_turn();
  bool commit();
  void write_rows();
  daemon::Experiment read_row(const daemon::Experiment& row) const;
  void deliver(const daemon::Send& send);
  void read_stream(FakeHost& host);
  void on_hello(FakeHost& host, const std::shared_ptr<Stream>& stream, const HelloMessage& hello);
  void see_closed(FakeHost& host);
  void end_stream(FakeHost& host);
  void restart_daemon();
  void tick_if_due();
  void close_finished();

  // ---- what may happen
  void submit();
  void kill();
  void suspend_some();
  void suspend(const ExperimentId& id, bool suspended);
  void pass_time(TimeMs by_ms);
  TimeMs until_deadline_ms() const;
  void fault(FakeHost& host);
  void leave(FakeHost& host);
  void drain(const FakeHost& host, bool drained);
  void lend_again(FakeHost& host);
  void host_moves(FakeHost& host);
  void replay_stale();
  void kill_impossible();
  Framework random_framework();
  Spec random_spec();
  void come_after_others(Spec& spec);
  void search(Spec& spec);
  void reach_rung();
  std::vector<Spec> random_shapes(Spec& spec);
  size_t below(size_t limit) { return static_cast<size_t>(random_() % limit); }
  bool chance(int percent) { return static_cast<int>(random_() % 100) < percent; }
  bool one_in(size_t many) { return below(many) == 0; }

  template <typename... Values>
  void note(fmt::format_string<Values...> format, Values&&... values) {
    if (traced_) remember(fmt::format(format, std::forward<Values>(values)...));
  }
  void remember(const std::string& line);

  // ---- what must hold
  void check_everything();
  void check_hosts() const;
  void check_gangs();
  void check_derived() const;
  void check_sets() const;
  void check_awaited();
  void check_search();
  // In thousandths of a cpu.
  struct UserHas {
    int64_t cpus = 0, memory_bytes = 0, gpus = 0;
    bool operator==(const UserHas&) const = default;
  };
  void make_quotas();
  std::map<std::string, UserHas> users_have() const;
  bool exceeds_quota(const daemon::Experiment& experiment) const;   // alone
  bool is_behind_in_quota(const daemon::Experiment& experiment) const;
  void check_quota_of_head(const daemon::Experiment& head, const std::vector<ExperimentId>& waited) const;
  bool has_a_place_somewhere(const daemon::Experiment& experiment) const;
  void check_quotas() const;
  void check_quota_order(const std::vector<ExperimentId>& waited, const std::map<std::string, UserHas>& before);
  using EachHas = std::map<std::pair<std::string, bool>, UserHas>;   // by users, what is preemptible by itself
  void make_fair_share();
  EachHas each_has() const;
  double share_of(const daemon::Experiment& experiment, const EachHas& has) const;
  std::vector<ExperimentId> in_turn(std::vector<ExperimentId> waiting, EachHas has, const std::set<daemon::QueueOrder>& regrowing) const;
  void make_failure_policy(Spec& spec);
  void print_something();
  void listen(const daemon::Event& event);
  // By what may have been heard at the latest, and what surely was; and how often it was looked at since it has long been silent.
  struct Heard {
    TimeMs surely_ms = 0, latest_ms = 0, looked_ms = 0;
    int looks = 0;
  };
  bool has_long_been_silent(const daemon::Experiment& experiment, const Heard& heard) const;
  void check_silent(const daemon::Experiment& experiment) const;
  void check_ended_for_silence(const ExperimentId& id);
  // Whose attempt ends with a failure that is judged later.
  struct Failing {
    daemon::Failure failure;
    uint32_t restarts_used = 0;
    std::vector<HostId> excluded_hosts = {};
    bool suspended = false;
  };
  enum class Verdict { Ignored, Restarts, Moves, Fails };
  std::map<ExperimentId, Failing> failing() const;
  size_t told_rule(const daemon::Experiment& experiment, const daemon::Replica* cause) const;
  Verdict told_verdict(const daemon::Experiment& experiment, const daemon::Replica& cause) const;
  void check_verdicts(const std::map<ExperimentId, Failing>& before);
  void check_killed_by_set(const daemon::Experiment& experiment) const;
  void forget_unsaid();
  void check_came_after(const daemon::Experiment& experiment);
  void check_durable() const;
  void check_reasons() const;
  void check_growth();
  void check_shown(const daemon::StateChange& change);
  void check_sendable(const FakeHost& host, const daemon::Send& send) const;
  void check_said_once(Stream& stream, const daemon::Send& send) const;
  void check_stale(const daemon::Event& event);
  // Whose attempt is being stopped already when one of its replicas ends, and its restarts so far.
  struct Stopped {
    ExperimentId id;
    uint32_t restarts_used = 0;
    uint32_t start_failures = 0;
  };
  // Whose exit decides something, and its restarts so far.
  struct Judged {
    daemon::ReplicaExited exited;
    uint32_t restarts_used = 0;
    bool leaves = false;   // dtrain ends it alone
  };
  std::set<daemon::HeldReplicaFact> lost_ones() const;
  void check_lost(const std::set<daemon::HeldReplicaFact>& before) const;
  std::optional<Judged> being_judged(const daemon::Event& event) const;
  void check_judged(const Judged& judged);
  void check_judged_by_policy(const Judged& judged);
  std::optional<Stopped> being_stopped(const daemon::Event& event) const;
  void check_consequence(const Stopped& stopped) const;
  // Of a host that just said it is unfit: what was counted before, when it concerned anybody.
  bool concerns_anybody(const daemon::LaunchFailed& failed) const;
  void check_ports(const daemon::Experiment& experiment) const;
  std::optional<Stopped> being_unfit(const daemon::Event& event) const;
  void check_unfit(const Stopped& before, const HostId& host);
  // What its restarts went to, told from launches and ends as they come.
  struct Spent {
    std::set<uint32_t> alone;      // attempts of replicas that were launched again alone
    std::set<uint32_t> begun;      // those of them that started
    int gangs = 0;                 // that failed and were to begin anew
    int let_go = 0;                // counted, and then the gang began anew for another reason
    uint32_t ended_attempt = 0;    // the last that was ended for another
    daemon::TimeMs run_since_ms = 0;   // max-duration counts from here
  };
  void check_restarts(const daemon::Experiment& experiment);
  void check_fitness() const;
  void check_given_up(const daemon::Experiment& experiment);
  void check_outcomes() const;
  void check_in_time(const daemon::Experiment& experiment) const;
  void check_waits_for_nothing(const daemon::Experiment& experiment) const;
  void check_outcome(const daemon::Experiment& experiment) const;
  void check_going(const daemon::Experiment& experiment) const;
  void check_committed(const daemon::Experiment& row);
  // Who waited before a placing pass, in order of their turns, and what the pass made of them.
  std::vector<ExperimentId> waiting_in_order() const;
  void check_backfill(const std::vector<ExperimentId>& waited);
  std::map<ExperimentId, int> regrown_;   // begun again for more workers, and how many it lacked; nothing else has changed
  struct Sizes {
    std::set<daemon::QueueOrder> growing;    // elastic gangs that would have more workers
    std::set<ExperimentId> had_lost;   // who waits, and has lost some
    daemon::TimeMs elastic_from_ms = 0;
    std::set<daemon::QueueOrder> regrowing = {};
  };
  Sizes sizes(const std::vector<ExperimentId>& waited);
  void check_turns(const std::vector<ExperimentId>& in_turn, const Sizes& before, EachHas had);
  void check_sizes(const std::vector<ExperimentId>& waited, const Sizes& before);
  // Before a placing pass: who could lose its place, with its restarts, and whether the first that waits, and to whom others
  // give way, is to have room by that.
  struct Favours {
    std::map<ExperimentId, uint32_t> could;
    std::optional<ExperimentId> first;
  };
  std::vector<daemon::Room> rooms_once_gone(const daemon::Experiment& waits, const std::set<ExperimentId>& gone) const;
  Favours favours_before(const std::vector<ExperimentId>& waited) const;
  void check_give_way(const std::vector<ExperimentId>& waited, const Favours& before);
  void check_nobody_asks_in_vain();
  void check_avoided(const std::vector<ExperimentId>& waited);

  std::mt19937_64 random_;
  const bool traced_;
  TimeMs now_ = 1'000;
  const daemon::Policy policy_;
  size_t pace_ms_;  // how far time goes in a step, mostly
  bool some_give_way_, some_have_policies_;
  std::vector<daemon::Quota> quotas_;
  std::vector<daemon::Weight> fair_share_;
  std::unique_ptr<daemon::Model> model_;
  Waiting waiting_;
  std::vector<daemon::StateChange> kept_notify_;  // in the database, by a commit that failed
  std::map<HostId, uint64_t> newest_dial_;
  std::vector<FakeHost> hosts_;
  bool calm_ = false;

  // ---- the database
  std::vector<std::shared_ptr<const daemon::Submission>> submissions_;
  std::map<ExperimentId, daemon::Experiment> rows_;
  std::map<ExperimentId, Spent> spent_rows_;   // as of the rows; no part of the database
  uint32_t last_number_ = 0;

  // ---- what was seen from outside
  std::map<std::pair<ExperimentId, std::optional<ReplicaId>>, daemon::StateChange> shown_;
  std::set<ExperimentId> ended_;
  std::map<ExperimentId, daemon::Outcome> outcomes_;  // as first committed
  std::set<HostId> drained_;                          // as on disk
  std::set<ExperimentId> killed_;                     // by a person
  std::map<ExperimentId, std::vector<double>> said_;  // each member's values where its set looks at them
  std::map<HostId, std::set<ExperimentId>> said_unfit_;  // since the host's last Hello
  std::map<HostId, daemon::TimeMs> contact_ms_;   // when it was last heard, or asked to begin something
  std::map<HostId, std::map<int, TimeMs>> taken_ports_;   // that this daemon was told of, and when
  std::set<ExperimentId> given_up_;
  std::map<ExperimentId, Heard> listened_;   // where silence matters
  std::set<ExperimentId> gave_way_, favoured_;   // and since then have had no place
  std::map<ExperimentId, Spent> spent_;
  TimeMs restarted_ms_ = 0;                           // when a daemon last began with live experiments
  std::deque<daemon::Event> heard_;                   // to be said again, when stale
  std::deque<std::string> trace_;
  Counts counts_;
  uint64_t steps_ = 0;
};

// Throws Broken when it does not hold; the words are made only then.
template <typename Words>
void require(bool holds, Words words) {
  if (!holds) throw Broken(words());
}
inline void require(bool holds, const char* words) {
  if (!holds) throw Broken(words);
}

}  // namespace dtrain::sim
