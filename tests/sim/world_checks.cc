// What must hold after every step, whatever happened.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "daemon/lifecycle_turn.h"
#include "daemon/placement.h"
#include "sim/world.h"

namespace dtrain::sim {

using namespace daemon;

namespace {

// Every durable fact, as text.
std::string facts_of(const Experiment& e) {
  std::string text =
      fmt::format("{} attempt {} phase {} stop {} over {} restarts {} failures {} excluded {} after {} "
                  "since {} times {} {}",
                  to_string(e.id), e.attempt, static_cast<int>(e.phase), e.stop_forced, e.over,
                  e.restarts_used, e.start_failures, e.excluded_hosts.size(), e.not_before_ms,
                  e.run_since_ms, e.started_unix_ms, e.finished_unix_ms);
  if (e.outcome) {
    text += fmt::format(" outcome {} {} {} at {}", to_string(e.outcome->state), e.outcome->exit_code,
                        e.outcome->reason, e.outcome->at_ms);
  }
  for (const Replica& r : e.replicas) {
    text += fmt::format("\n  {} @{} on {}:{} lease {} progress {} lost {} end {} {} pid {}",
                        to_string(r.id), r.attempt, r.seat.host.hex, r.seat.port, r.lease_ms,
                        static_cast<int>(r.progress), r.lost,
                        r.end ? to_string(*r.end) : "-", r.reason, r.pid);
    if (r.exit) text += fmt::format(" exit {} {}", r.exit->code, r.exit->signal);
  }
  return text;
}

}  // namespace

void World::require(bool holds, const std::string& what) const {
  if (!holds) throw Broken(what);
}

void World::check_everything() {
  check_hosts();
  if (steps_ % 4 == 0) {
    check_gangs();
    check_durable();
  }
  if (steps_ % 16 == 0) check_derived();
}

// The truth of the machines: no copy twice, no GPU, port or memory twice.
void World::check_hosts() const {
  std::set<ReplicaId> running;
  for (const FakeHost& host : hosts_) {
    std::map<int, HeldReplicaFact> gpus, ports;
    uint64_t memory_bytes = 0;
    for (const auto& [fact, replica] : host.replicas) {
      if (replica.stage == Stage::Running) {
        require(running.insert(fact.replica).second,
                "at most one live copy of " + to_string(fact.replica));
      }
      if (replica.stage == Stage::Released) continue;
      const auto once = [&, fact = fact](std::map<int, HeldReplicaFact>& users, int what,
                                       const char* kind) {
        const auto [user, first] = users.try_emplace(what, fact);
        require(first, fmt::format("{} {} of {} is used once, not by {}@{} and {}@{}", kind, what,
                                   host.inventory.name, to_string(user->second.replica),
                                   user->second.attempt, to_string(fact.replica), fact.attempt));
      };
      for (const int gpu : replica.seat.gpus) once(gpus, gpu, "GPU");
      once(ports, replica.seat.port, "port");
      memory_bytes += replica.seat.memory_bytes;
    }
    require(memory_bytes <= host.inventory.memory_bytes,
            host.inventory.name + "'s memory is promised once");
  }
}

void World::check_gangs() const {
  for (const ExperimentId& id : model_->live) {
    const Experiment& experiment = model_->experiments.at(id);
    const bool placed = experiment.phase != Phase::None;
    const auto whole = static_cast<size_t>(experiment.spec().replica_count());
    require(!placed || experiment.replicas.size() == whole, to_string(id) + " is placed whole");
    for (const Replica& replica : experiment.replicas) {
      require(!placed || replica.attempt > 0, to_string(replica.id) + " is placed with its gang");
      require(placed || experiment.outcome || !is_alive(replica),
              to_string(replica.id) + " is not alive between attempts");
      require(replica.attempt <= experiment.attempt, "attempts are given by the experiment");
    }
  }
}

void World::check_derived() const {
  Model fresh;
  for (const auto& [id, experiment] : model_->experiments) {
    fresh.experiments.emplace(id, experiment);
    index(fresh, experiment);
  }
  require(fresh.live == model_->live, "live is who is not over");
  require(fresh.seated == model_->seated, "seated is who has seats");
  require(fresh.queue.lanes == model_->queue.lanes, "the queue is who waits");
  std::set<std::pair<TimeMs, ExperimentId>> deadlines = model_->deadlines;
  std::erase_if(deadlines, [](const auto& deadline) { return deadline.second.number == 0; });
  require(fresh.deadlines == deadlines, "deadlines follow from the facts");
  for (const auto& [number, tally] : model_->sets) {
    const SetTally& counted = fresh.sets.at(number);
    require(counted.members == tally.members && counted.in_slots == tally.in_slots &&
                counted.held == tally.held &&
                std::equal(std::begin(counted.by_state), std::end(counted.by_state),
                           std::begin(tally.by_state)),
            "members are counted right");
    const int concurrency = model_->experiments.lower_bound({number, 1})->second.spec().concurrency;
    require(concurrency == 0 || tally.in_slots <= static_cast<uint32_t>(concurrency),
            "at most `concurrency` members at once");
    require(concurrency == 0 || tally.held.empty() ||
                tally.in_slots == static_cast<uint32_t>(concurrency),
            "no member is held back for nothing");
  }
  for (const auto& [id, host] : model_->hosts) {
    const FreeHost free = free_host(*model_, host);
    const FreeHost* kept = model_->free.find(id);
    require(kept != nullptr && free.open == kept->open && free.gpus == kept->gpus &&
                free.ports_used == kept->ports_used && free.seats == kept->seats &&
                free.memory_bytes == kept->memory_bytes && std::abs(free.cpus - kept->cpus) < 1e-6,
            "what is free on " + host.name + " follows from the seats");
  }
}

void World::check_durable() const {
  for (const auto& [id, experiment] : model_->experiments) {
    const auto row = rows_.find(id);
    if (row == rows_.end()) {
      require(experiment.attempt == 0 && !experiment.outcome, to_string(id) + " was never stored");
      continue;
    }
    const std::string stored = facts_of(row->second);
    const std::string known = facts_of(experiment);
    require(stored == known, "the database knows what memory knows:\n" + stored + "\n" + known);
  }
}

void World::check_shown(const StateChange& change) {
  note(fmt::format("{} --> {} {}", change.replica ? to_string(*change.replica) : to_string(change.experiment),
                   to_string(change.state), change.reason));
  const std::string name =
      change.replica ? to_string(*change.replica) : to_string(change.experiment);
  require(!ended_.contains(change.experiment), name + " changes after its end");
  const auto [place, first] = shown_.try_emplace({change.experiment, change.replica}, change);
  if (!first) {
    const StateChange before = std::exchange(place->second, change);
    const bool new_attempt = change.replica && change.attempt > before.attempt;
    const bool again = change.state == before.state;
    require(again || (new_attempt && is_terminal(before.state)) ||
                may_follow(before.state, change.state),
            fmt::format("{} goes from {} to {}", name, to_string(before.state), to_string(change.state)));
  }
  if (!change.replica && is_terminal(change.state)) {
    const auto found = model_->experiments.find(change.experiment);
    if (found != model_->experiments.end()) {
      const Experiment& experiment = found->second;
      require(experiment.over, name + " is over when it says so");
      for (const Replica& replica : experiment.replicas) {
        require(replica.end.has_value() && is_gone(replica),
                to_string(replica.id) + " has ended with its experiment");
      }
      ended_.emplace(change.experiment, *experiment.outcome);
    } else {
      ended_.emplace(change.experiment, Outcome{});
    }
  }
}

// Persist precedes send: what a message follows from is in the database.
void World::check_sendable(const Send& send) const {
  if (const auto* launch = std::get_if<SendLaunch>(&send)) {
    const Experiment& row = rows_.at(launch->experiment);
    for (const ReplicaId& id : launch->replicas) {
      const bool stored = std::any_of(row.replicas.begin(), row.replicas.end(), [&](const Replica& r) {
        return r.id == id && r.attempt == launch->attempt && r.progress != Progress::None;
      });
      require(stored, to_string(id) + " is placed in the database before Launch is sent");
    }
  } else if (const auto* start = std::get_if<SendStart>(&send)) {
    const Experiment& row = rows_.at(start->experiment);
    for (const Replica& replica : row.replicas) {
      if (replica.attempt != start->attempt || replica.seat.host != start->host) continue;
      require(replica.progress >= Progress::Prepared && row.phase == Phase::Go,
              to_string(replica.id) + " has Go in the database before Start is sent");
    }
  } else if (const auto* forget = std::get_if<SendForget>(&send)) {
    for (const HeldReplicaFact& fact : forget->replicas) {
      const auto row = rows_.find(fact.replica.experiment);
      if (row == rows_.end()) continue;
      for (const Replica& replica : row->second.replicas) {
        if (replica.id != fact.replica || replica.attempt != fact.attempt) continue;
        require(is_gone(replica), to_string(replica.id) + " is released in the database before Forget");
      }
    }
  }
}

}  // namespace dtrain::sim
