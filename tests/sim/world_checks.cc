// What must hold after every step, whatever happened: of the machines, of what is derived, stored,
// shown and sent. world_outcomes.cc has what an end must follow from.
#include <algorithm>
#include <bitset>
#include <cmath>

#include "daemon/lifecycle_turn.h"
#include "daemon/growth.h"
#include "daemon/placement_elastic.h"
#include "daemon/preemption.h"
#include "daemon/queue.h"
#include "daemon/wait_reason.h"
#include "sim/world.h"

namespace dtrain::sim {

using namespace daemon;

namespace {

// Every durable fact, as text.
std::string facts_of(const Experiment& e) {
  std::string text = fmt::format(
      "{} attempt {} phase {} stop {} suspended {} over {} restarts {} failures {} excluded {} after {} "
      "since {} times {} {}",
      to_string(e.id), e.attempt, static_cast<int>(e.phase), e.stop_forced, e.suspended, e.over, e.restarts_used,
      e.start_failures, e.excluded_hosts.size(), e.not_before_ms, e.run_since_ms, e.started_unix_ms,
      e.finished_unix_ms);
  if (e.outcome) {
    text += fmt::format(" outcome {} {} {} at {}", to_string(e.outcome->state),
                        e.outcome->exit_code, e.outcome->reason, e.outcome->at_ms);
  }
  if (e.failure) text += fmt::format(" failure {} {}", e.failure->cause ? to_string(*e.failure->cause) : "-", e.failure->what);
  if (e.unfit_hosts) {
    for (const auto& [host, lack] : *e.unfit_hosts) {
      text += fmt::format(" unfit {} {}", host.hex, lack);
    }
  }
  for (const Replica& r : e.replicas) {
    text += fmt::format("\n  {} @{} on {}:{} lease {} progress {} lost {} end {} {} pid {}",
                        to_string(r.id), r.attempt, r.seat.host.hex, r.seat.port, r.lease_ms,
                        static_cast<int>(r.progress), r.lost, r.end ? to_string(*r.end) : "-",
                        r.reason, r.pid);
    if (r.exit) text += fmt::format(" exit {} {}", r.exit->code, r.exit->signal);
  }
  return text;
}

bool same_facts(const Replica& a, const Replica& b) {
  return a.id == b.id && a.attempt == b.attempt && a.seat == b.seat && a.lease_ms == b.lease_ms &&
         a.progress == b.progress && a.lost == b.lost && a.exit == b.exit && a.end == b.end &&
         a.reason == b.reason && a.started_unix_ms == b.started_unix_ms && a.pid == b.pid;
}

// But for what only memory knows.
bool same_facts(const Experiment& a, const Experiment& b) {
  return a.id == b.id && a.attempt == b.attempt && a.build_attempt == b.build_attempt && a.phase == b.phase && a.gave_way_to == b.gave_way_to &&
         a.stop_forced == b.stop_forced && a.suspended == b.suspended && a.over == b.over && a.outcome == b.outcome && a.failure == b.failure &&
         a.restarts_used == b.restarts_used && a.start_failures == b.start_failures && a.placed_after == b.placed_after &&
         a.excluded_hosts == b.excluded_hosts && a.unfit_hosts == b.unfit_hosts && a.not_before_ms == b.not_before_ms &&
         a.run_since_ms == b.run_since_ms && a.started_unix_ms == b.started_unix_ms &&
         a.finished_unix_ms == b.finished_unix_ms &&
         std::equal(a.replicas.begin(), a.replicas.end(), b.replicas.begin(), b.replicas.end(),
                    [](const Replica& x, const Replica& y) { return same_facts(x, y); });
}

// All that its spec names, in order, but for the last workers.
bool is_without_gaps(const Experiment& experiment) {
  std::vector<ReplicaId> ids = replica_ids(experiment.id, experiment.spec());
  const auto is_worker = [](const ReplicaId& id) { return id.role == Role::Worker; };
  const auto all = std::count_if(ids.begin(), ids.end(), is_worker);
  const auto here = std::count_if(experiment.replicas.begin(), experiment.replicas.end(), [&](const Replica& one) { return is_worker(one.id); });
  const auto last = std::find_if(ids.rbegin(), ids.rend(), is_worker).base();
  ids.erase(last - (all - here), last);
  return std::equal(ids.begin(), ids.end(), experiment.replicas.begin(), experiment.replicas.begin() + static_cast<std::ptrdiff_t>(ids.size()),
                    [](const ReplicaId& id, const Replica& replica) { return id == replica.id; });
}

bool keeps_per_host(const Experiment& experiment) {
  std::map<std::pair<HostId, Role>, int> taken;
  for (const Replica& replica : experiment.replicas) ++taken[{replica.seat.host, counted_as(replica.id.role)}];
  return std::all_of(experiment.replicas.begin(), experiment.replicas.end(), [&](const Replica& replica) {
    const RoleSpec* const role = experiment.spec().role(replica.id.role);
    return is_build(replica) || role->per_host == 0 || taken.at({replica.seat.host, counted_as(replica.id.role)}) <= role->per_host;
  });
}

}  // namespace

void World::check_everything() {
  check_hosts();
  check_outcomes();
  check_fitness();
  if (steps_ % 4 == 0) {
    check_gangs();
    check_quotas();
    check_durable();
  }
  if (steps_ % 8 == 0) {
    check_derived();
    check_sets();
    check_awaited();
    check_search();
  }
  if (steps_ % 64 == 0) {
    check_reasons();
    check_growth();
    check_nobody_asks_in_vain();
  }
}

// The truth of the machines: no copy twice, no GPU, port or memory twice.
void World::check_hosts() const {
  std::vector<const ReplicaId*> running;
  for (const FakeHost& host : hosts_) {
    std::bitset<64> gpus;
    std::bitset<256> ports;
    uint64_t memory_bytes = 0;
    for (const auto& [fact, replica] : host.replicas) {
      if (replica.stage == Stage::Running) running.push_back(&fact.replica);
      if (replica.stage == Stage::Released || replica.stage == Stage::Failed) continue;
      const auto once = [&, &who = fact](auto& used, int what, const char* kind, int named) {
        require(!used.test(static_cast<size_t>(what)), [&] {
          return fmt::format("{} {} of {} is used once; the second is {}@{}", kind, named,
                             host.inventory.name, to_string(who.replica), who.attempt);
        });
        used.set(static_cast<size_t>(what));
      };
      for (const int gpu : replica.seat.gpus) once(gpus, gpu, "GPU", gpu);
      const int port = replica.seat.port;
      if (port != 0) once(ports, port - host.inventory.port_first, "port", port);
      memory_bytes += replica.seat.memory_bytes;
    }
    require(memory_bytes <= host.inventory.memory_bytes,
            [&] { return host.inventory.name + "'s memory is promised once"; });
  }
  std::sort(running.begin(), running.end(), [](const auto* a, const auto* b) { return *a < *b; });
  const auto twice = std::adjacent_find(running.begin(), running.end(),
                                        [](const auto* a, const auto* b) { return *a == *b; });
  require(twice == running.end(),
          [&] { return "at most one live copy, not two of " + to_string(**twice); });
}

void World::check_gangs() {
  for (const ExperimentId& id : model_->live) {
    const Experiment& experiment = model_->experiments.at(id);
    const bool placed = experiment.phase != Phase::None;
    const auto whole = static_cast<size_t>(experiment.spec().replica_count());
    const auto least = static_cast<size_t>(LeastGang(experiment.spec()).spec().replica_count());
    std::set<HostId> seats, builds;
    size_t all_builds = 0;
    for (const Replica& replica : experiment.replicas) {
      (is_build(replica) ? builds : seats).insert(replica.seat.host);
      all_builds += is_build(replica);
    }
    const size_t gang = experiment.replicas.size() - all_builds;
    require(!placed || (gang <= whole && gang >= least), [&, &named = id] { return to_string(named) + " is placed whole"; });
    require(!placed || keeps_per_host(experiment), [&, &named = id] { return "no host has more of a role of " + to_string(named) + " than it may"; });
    if (placed && seats.size() > 1 && experiment.spec().roles.front().per_host > 0) counts_.add(Seen::SpreadByPerHost);
    require(!placed || is_without_gaps(experiment), [&, &named = id] { return to_string(named) + " lacks the last of its workers only"; });
    require(!placed || builds == (experiment.spec().has_build() ? seats : std::set<HostId>()),
            [&, &named = id] { return "one build on each host of " + to_string(named); });
    for (const Replica& replica : experiment.replicas) {
      require(!placed || is_build(replica) || !replica.seat.address.empty(),
              [&] { return to_string(replica.id) + " has an address that its gang reaches"; });
      require(!placed || replica.attempt > 0,
              [&] { return to_string(replica.id) + " is placed with its gang"; });
      require(placed || experiment.outcome || !is_alive(replica),
              [&] { return to_string(replica.id) + " is not alive between attempts"; });
      require(replica.attempt <= (is_build(replica) ? experiment.build_attempt : experiment.attempt),
              "attempts are given by the experiment");
    }
  }
}

void World::check_derived() const {
  Model fresh;
  fresh.quotas = quotas_;
  fresh.fair_share = fair_share_;
  for (const auto& [id, experiment] : model_->experiments) index(fresh, experiment);
  require(fresh.live == model_->live, "live is who is not over");
  require(fresh.growing == model_->growing && fresh.returning == model_->returning && fresh.regrowing == model_->regrowing,
          "who would have more workers, and who is on its way back into the queue, follows from the facts");
  require(fresh.preemptible == model_->preemptible && fresh.giving_way == model_->giving_way && fresh.ending == model_->ending && fresh.preemptible_live == model_->preemptible_live, "who may give way, and does, follows from the facts");
  require(fresh.seated == model_->seated, "seated is who has seats");
  require(fresh.unfit == model_->unfit, "who can't use which host follows from the facts");
  require(fresh.queue.lanes == model_->queue.lanes, "the queue is who waits");
  std::set<std::pair<TimeMs, ExperimentId>> deadlines = model_->deadlines;
  std::erase_if(deadlines, [](const auto& deadline) { return deadline.second.number == 0; });
  require(fresh.deadlines == deadlines, "deadlines follow from the facts");
  for (const auto& [number, tally] : model_->sets) {
    const SetTally& counted = fresh.sets.at(number);
    require(counted.members == tally.members && counted.in_slots == tally.in_slots &&
                counted.held == tally.held && counted.costs == tally.costs && counted.shared_lives == tally.shared_lives &&
                std::equal(std::begin(counted.by_state), std::end(counted.by_state),
                           std::begin(tally.by_state)),
            "members are counted right");
    const auto limit = static_cast<uint32_t>(
        model_->experiments.lower_bound({number, 1})->second.spec().concurrency);
    require(limit == 0 || tally.in_slots <= limit, "at most `concurrency` members at once");
    const bool wait = !tally.held.empty() && model_->experiments.at(*tally.held.begin()).awaits;
    require(limit == 0 || tally.held.empty() || wait || tally.in_slots == limit,
            "no member is held back for nothing");
  }
  for (const auto& [id, host] : model_->hosts) {
    const FreeHost free = free_host(*model_, host);
    const FreeHost* kept = model_->free.find(id);
    require(
        kept != nullptr && free.open == kept->open && free.gpus == kept->gpus &&
            free.ports_used == kept->ports_used && free.seats == kept->seats &&
            free.memory_bytes == kept->memory_bytes && std::abs(free.cpus - kept->cpus) < 1e-6,
        [&, &named = host] { return "what is free on " + named.name + " follows from the seats"; });
  }
}

// From the submissions alone: who belongs to which, and what a set must have said of itself.
void World::check_sets() const {
  for (const auto& submission : submissions_) {
    const Spec& spec = submission->spec;
    const uint32_t number = submission->number;
    const auto of = [&](uint32_t member) { return model_->experiments.find({number, member}); };
    const auto none = model_->experiments.end();
    const auto has_board = [&](const Spec& shape) { return shape.role(Role::Tensorboard) != nullptr; };
    const bool shares = spec.is_set() && has_board(spec);
    require((of(0) != none) == (!spec.is_set() || shares),
            [&] { return fmt::format("{} itself is an experiment, or what its members share", number); });
    if (!spec.is_set()) continue;
    const auto members = static_cast<uint32_t>(spec.member_count());
    require(of(members + 1) == none, "no set has more members than were asked for");
    uint32_t over = 0, in_slots = 0, placed = 0;
    for (uint32_t member = 1; member <= members; ++member) {
      require(of(member) != none,
              [&] { return fmt::format("{}.{} is one of its set", number, member); });
      const Experiment& experiment = of(member)->second;
      require(!has_board(experiment.spec()), "no member has a TensorBoard of its own");
      over += experiment.over;
      const bool has_nothing = experiment.phase == Phase::None && (experiment.held || experiment.awaits || experiment.suspended);
      in_slots += !experiment.over && !has_nothing;
      placed += !experiment.over && experiment.phase != Phase::None;
    }
    if (shares) {
      const Experiment& shared = of(0)->second;
      require(has_board(shared.spec()) && shared.spec().roles.size() == 1, "what is shared is a TensorBoard");
      require(over < members || shared.outcome, "what members share ends with the last of them");
    }
    const auto most = static_cast<uint32_t>(spec.concurrency);
    require(most == 0 || placed <= most, [&] { return fmt::format("of {} no more members have their place than its concurrency allows", number); });
    const bool ended = over == members && (!shares || of(0)->second.over);
    const auto tally = model_->sets.find(number);
    require((tally == model_->sets.end()) == ended,
            [&] { return fmt::format("{} is counted until all of it is over", number); });
    require(ended || (tally->second.members == members && tally->second.in_slots == in_slots &&
                      tally->second.shared_lives == (shares && !of(0)->second.over)),
            [&] { return fmt::format("the members of {} are counted right", number); });
    if (!waiting_.empty()) continue;
    const auto shown = shown_.find({{number, 0}, std::nullopt});
    const State said = shown == shown_.end() ? State::Created : shown->second.state;
    require(is_terminal(said) == ended,
            [&] { return fmt::format("{} is shown as over when all of it is", number); });
    require((said == State::Stopping) == (over == members && !ended),
            [&] { return fmt::format("{} is stopping as long as only what it shares lives", number); });
  }
}

// But for what waits to be committed, the database knows what memory knows.
void World::check_durable() const {
  for (const auto& [id, experiment] : model_->experiments) {
    if (waiting_.rows.contains(id)) continue;
    const auto row = rows_.find(id);
    if (row == rows_.end()) {
      const bool as_submitted = experiment.suspended == first_state(experiment.submission, id.member).suspended;
      require(experiment.attempt == 0 && !experiment.outcome && as_submitted, "what happened to it was stored");
      continue;
    }
    require(same_facts(row->second, experiment), [&, &known = experiment] {
      return "the database knows what memory knows:\n" + facts_of(row->second) + "\n" +
             facts_of(known);
    });
  }
}

void World::check_reasons() const {
  const bool tick_due = !model_->deadlines.empty() && model_->deadlines.begin()->first <= now_;
  for (const ExperimentId& id : model_->live) {
    const Experiment& experiment = model_->experiments.at(id);
    if (experiment.outcome || experiment.phase != Phase::None) continue;
    if (experiment.not_before_ms != 0 && experiment.wait_reason.empty()) continue;  // restarted
    const std::string reason = wait_reason(*model_, id, now_);
    require(!reason.empty(), "who waits has a reason");
    require(model_->place_wanted || tick_due || reason != "is placed next",
            [&, &whose = id] { return to_string(whose) + " could be placed and nobody looks"; });
  }
}

// Who may have more workers has them, where there is room that nobody else waits for.
void World::check_growth() {
  if (is_room_promised(*model_)) return;
  const bool tick_due = !model_->deadlines.empty() && model_->deadlines.begin()->first <= now_;
  if (model_->place_wanted || tick_due || now_ < std::max(model_->grow_next_ms, model_->elastic_from_ms)) return;
  for (const QueueOrder& order : model_->growing) {
    const Experiment& experiment = model_->experiments.at(order.id);
    require(!larger_gang(*model_, experiment, now_), [&] { return to_string(experiment.id) + " could have more workers and nobody looks"; });
  }
}

void World::check_shown(const StateChange& change) {
  const auto name = [&] {
    return change.replica ? to_string(*change.replica) : to_string(change.experiment);
  };
  if (traced_) note("{} --> {} {}", name(), to_string(change.state), change.reason);
  require(!ended_.contains(change.experiment), [&] { return name() + " changes after its end"; });
  const auto [place, first] = shown_.try_emplace({change.experiment, change.replica}, change);
  if (!first) {
    const StateChange before = std::exchange(place->second, change);
    const bool new_attempt = change.replica && change.attempt > before.attempt;
    const bool again = change.state == before.state;
    require(again || (new_attempt && is_terminal(before.state)) ||
                may_follow(before.state, change.state),
            [&] {
              return fmt::format("{} goes from {} to {}", name(), to_string(before.state),
                                 to_string(change.state));
            });
  }
  if (change.replica || !is_terminal(change.state)) return;
  ended_.insert(change.experiment);
  const auto found = model_->experiments.find(change.experiment);
  if (found == model_->experiments.end()) return;
  require(found->second.over, [&] { return name() + " is over when it says so"; });
  for (const Replica& replica : found->second.replicas) {
    require(replica.end.has_value() && is_gone(replica),
            [&] { return to_string(replica.id) + " has ended with its experiment"; });
  }
}

// Persist precedes send: what a message follows from is in the database.
void World::check_sendable(const FakeHost& host, const Send& send) const {
  if (const auto* launch = std::get_if<SendLaunch>(&send)) {
    const Experiment& row = rows_.at(launch->id.experiment);
    for (const Replica& replica : row.replicas) {
      const auto& named = launch->replicas;
      if (std::find(named.begin(), named.end(), replica.id) == named.end()) continue;
      if (!is_build(replica)) {
        require(std::all_of(row.replicas.begin(), row.replicas.end(),
                            [](const Replica& r) { return !is_build(r) || r.end == State::Finished; }),
                "what is launched has all that was to be built, in the database");
      }
      require(launch_of(replica) == launch->id && replica.progress != Progress::None,
              "what is launched is placed in the database");
      require(replica.seat.host == host.inventory.id, "a Launch goes to the host of the seats");
    }
  } else if (const auto* start = std::get_if<SendStart>(&send)) {
    const Experiment& row = rows_.at(start->id.experiment);
    // Go, exit and release may be one turn: then it is sent for what is no more.
    const bool over = row.phase == Phase::None || (start->id.of_builds ? row.build_attempt : row.attempt) > start->id.attempt ||
                      row.phase == Phase::Building;
    require(row.phase == Phase::Go || row.phase == Phase::Ending || row.outcome || over,
            "Go is in the database before Start is sent");
    for (const Replica& replica : row.replicas) {
      if (launch_of(replica) != start->id) continue;
      if (is_build(replica) && replica.seat.host != host.inventory.id) continue;   // each by itself
      require(replica.progress >= Progress::Prepared,
              "all of a gang are prepared, in the database, before any of it is started");
    }
  } else if (const auto* forget = std::get_if<SendForget>(&send)) {
    for (const HeldReplicaFact& fact : forget->replicas) {
      const auto row = rows_.find(fact.replica.experiment);
      if (row == rows_.end()) continue;
      for (const Replica& replica : row->second.replicas) {
        if (replica.id != fact.replica || replica.attempt != fact.attempt) continue;
        require(is_gone(replica), "what is forgotten is released in the database");
      }
    }
  }
}

void World::check_said_once(Stream& stream, const Send& send) const {
  if (const auto* launch = std::get_if<SendLaunch>(&send)) {
    for (const ReplicaId& id : launch->replicas) {
      require(stream.launches.insert({id, launch->id.attempt}).second,
              "a launch is said once a stream");
    }
  } else if (const auto* start = std::get_if<SendStart>(&send)) {
    require(stream.starts.insert(start->id).second,
            "Start is said once a stream");
  }
}

// Says it again when its attempt is no more: then it is inert.
void World::check_stale(const Event& event) {
  std::optional<ReplicaId> one;  // else all of a launch
  LaunchId launch;
  std::visit(
      [&](const auto& said) {
        if constexpr (requires { said.launch; }) launch = said.launch;
        if constexpr (requires { said.replica; said.attempt; }) {
          one = said.replica;
          launch = launch_of(said.replica, said.attempt);
        }
      },
      event);
  const auto found = model_->experiments.find(launch.experiment);
  if (launch.attempt == 0 || found == model_->experiments.end()) return;
  const Experiment& experiment = found->second;
  for (const Replica& replica : experiment.replicas) {
    const bool named = !one || *one == replica.id;
    if (named && launch_of(replica) == launch && !experiment.over) return;
  }
  counts_.add(Seen::StaleMessage);
  const Experiment before = experiment;
  Effects effects = daemon::step(*model_, event, policy_, now_);
  const bool only_forget = std::all_of(effects.send.begin(), effects.send.end(), [](const Send& s) {
    return std::holds_alternative<SendForget>(s);
  });
  require(effects.notify.empty() && effects.persist.empty() && only_forget,
          "a stale attempt has no effect");
  require(before == experiment, "a stale attempt changes nothing");
  keep(std::move(effects));
}

}  // namespace dtrain::sim
