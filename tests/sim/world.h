// One simulated cluster: a daemon that remembers only what it persisted, fake hosts, virtual time, a
// seed. Every step does one thing that can happen, then everything that must always hold is checked.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "daemon/lifecycle.h"
#include "sim/fake_host.h"

namespace dtrain::sim {

// A broken promise; what() says which.
struct Broken : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class World {
 public:
  explicit World(uint64_t seed);
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  void step();
  // No more faults, no more work: everything must come to its end.
  void quiesce();
  const std::deque<std::string>& trace() const { return trace_; }

 private:
  // ---- the daemon around the pure core
  void happen(const daemon::Event& event);
  void pass();
  void commit_and_send(daemon::Effects effects);
  void deliver(const daemon::Send& send);
  void from_runner(FakeHost& host);
  void restart_daemon();
  void tick_if_due();

  // ---- what may happen
  void submit();
  void kill();
  void pass_time(TimeMs by_ms);
  void fault(FakeHost& host);
  void host_moves(FakeHost& host);
  void replay_stale();
  void kill_impossible();
  Spec random_spec();
  void note(std::string line);
  size_t below(size_t limit) { return static_cast<size_t>(random_() % limit); }
  bool chance(int percent) { return static_cast<int>(random_() % 100) < percent; }

  // ---- what must hold
  void check_everything();
  void check_hosts() const;
  void check_gangs() const;
  void check_derived() const;
  void check_durable() const;
  void check_shown(const daemon::StateChange& change);
  void check_sendable(const daemon::Send& send) const;
  void require(bool holds, const std::string& what) const;

  std::mt19937_64 random_;
  TimeMs now_ = 1'000;
  const daemon::Policy policy_;
  std::unique_ptr<daemon::Model> model_;
  std::vector<FakeHost> hosts_;
  bool calm_ = false;

  // ---- the database
  std::vector<std::shared_ptr<const daemon::Submission>> submissions_;
  std::map<ExperimentId, daemon::Experiment> rows_;

  std::map<std::pair<ExperimentId, std::optional<ReplicaId>>, daemon::StateChange> shown_;
  std::map<ExperimentId, daemon::Outcome> ended_;
  std::deque<daemon::Event> heard_;      // to be said again, when stale
  std::deque<std::string> trace_;
  uint64_t steps_ = 0;
};

}  // namespace dtrain::sim
