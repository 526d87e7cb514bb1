// What an end must follow from, told from the facts alone; and that who waits is not passed over.
#include <algorithm>
#include <functional>

#include "daemon/placement.h"
#include "daemon/queue.h"
#include "sim/world.h"

namespace dtrain::sim {

using namespace daemon;

namespace {

bool succeeded(const Replica& replica) {
  return replica.exit && !is_failure(*replica.exit);
}

// Whether all of a gang finds room: every way to spread it is tried, so this never errs.
class Search {
 public:
  Search(const Spec& spec, std::vector<Room> rooms) : spec_(spec), rooms_(std::move(rooms)) {}
  bool run() { return from(0, 0, spec_.roles.front().count); }

 private:
  bool from(size_t role, size_t host, int left) {
    if (left == 0) {
      if (++role == spec_.roles.size()) return true;
      return from(role, 0, spec_.roles[role].count);
    }
    if (host == rooms_.size()) return false;
    const Resources& each = spec_.roles[role].resources;
    const Room before = rooms_[host];
    Room& room = rooms_[host];
    for (int count = 0; count <= left; ++count) {
      if (from(role, host + 1, left - count)) return true;
      room.cpus -= each.cpus;
      room.memory_bytes -= static_cast<int64_t>(each.memory_bytes);
      room.gpus -= each.gpus;
      room.ports -= 1;
      if (room.cpus < -1e-6 || room.memory_bytes < 0 || room.gpus < 0 || room.ports < 0) break;
    }
    rooms_[host] = before;
    return false;
  }

  const Spec& spec_;
  std::vector<Room> rooms_;
};

bool may_use(const Experiment& experiment, const Host& host) {
  const std::string& wanted = experiment.submission->host;
  const auto& excluded = experiment.excluded_hosts;
  return (wanted.empty() || wanted == host.name) &&
         std::find(excluded.begin(), excluded.end(), host.id) == excluded.end();
}

Room whole(const Host& host) {
  Room room{host.cpus, static_cast<int64_t>(host.memory_bytes), 0,
            host.port_last - host.port_first + 1 - static_cast<int>(host.quarantined_ports.size())};
  for (const Gpu& gpu : host.gpus) room.gpus += gpu.busy.empty() ? 1 : 0;
  return room;
}

}  // namespace

void World::check_outcomes() const {
  for (const ExperimentId& id : model_->live) {
    const Experiment& experiment = model_->experiments.at(id);
    const auto limit = static_cast<uint32_t>(experiment.spec().restart.limit);
    require(experiment.restarts_used <= limit, "no more restarts than its budget has");
    require(experiment.start_failures < policy_.start_failures_per_host,
            "after so many failed starts in a row a host is excluded");
    if (experiment.outcome)
      check_outcome(experiment);
    else if (experiment.phase == Phase::Go)
      check_going(experiment);
  }
}

void World::check_outcome(const Experiment& experiment) const {
  const Outcome& outcome = *experiment.outcome;
  const auto& replicas = experiment.replicas;
  if (outcome.state == State::Killed) {
    require(killed_.contains(experiment.id), "only who was killed is KILLED");
    return;
  }
  if (outcome.state == State::Finished) {
    require(!replicas.empty() && succeeded(replicas.front()),
            "only the decider's success is an experiment's");
    if (experiment.spec().completion != Completion::AllWorkers) return;
    for (const Replica& replica : replicas) {
      const OnFailure rule = role_of(experiment, replica).on_failure;
      require(replica.id.role != Role::Worker || succeeded(replica) || rule == OnFailure::Ignore,
              [&] { return to_string(replica.id) + " had to succeed too"; });
    }
    return;
  }
  if (!outcome.cause) return;
  const auto cause = std::find_if(replicas.begin(), replicas.end(),
                                  [&](const Replica& r) { return r.id == *outcome.cause; });
  require(cause != replicas.end() && !succeeded(*cause), "nobody fails by a success");
  const bool ignored = role_of(experiment, *cause).on_failure == OnFailure::Ignore;
  require(!ignored || cause == replicas.begin() || !cause->exit, "who may be ignored fails nobody");
}

// Nothing has ended it: so nothing may have happened that would have.
void World::check_going(const Experiment& experiment) const {
  const Replica& first = decider(experiment);
  const bool all_workers = experiment.spec().completion == Completion::AllWorkers;
  bool worker_left = false;
  for (const Replica& replica : experiment.replicas) {
    worker_left |= replica.id.role == Role::Worker && !replica.end;
    if (!replica.exit || !is_failure(*replica.exit)) continue;
    const OnFailure rule = role_of(experiment, replica).on_failure;
    const bool decides = replica.id == first.id;
    require(!decides && rule != OnFailure::Fail, "who may not fail ends what it belongs to");
  }
  require(!succeeded(first) || (all_workers && worker_left),
          [&] { return to_string(experiment.id) + " has ended with its decider"; });
}

// Of each row that is written.
void World::check_committed(const Experiment& row) {
  if (!row.excluded_hosts.empty()) counts_.add(Seen::HostExcluded);
  for (const Replica& replica : row.replicas) {
    if (replica.lost) counts_.add(Seen::HostLost);
    if (replica.attempt != decider(row).attempt) counts_.add(Seen::RelaunchedAlone);
  }
  if (!row.outcome) return;
  const auto [known, first] = outcomes_.try_emplace(row.id, *row.outcome);
  require(known->second == *row.outcome, "an outcome is fixed once");
  if (!first || row.outcome->state != State::Failed) return;
  if (row.outcome->reason.find("no host is left") == std::string::npos) return;
  counts_.add(Seen::NoHostLeft);
  require(!could_be_placed(row) || now_ >= daemon_since_ms_ + policy_.lease_ms,
          "nobody gives up for want of a host that is about to come back");
}

bool World::could_be_placed(const Experiment& experiment) const {
  std::vector<Room> rooms;
  for (const FakeHost& host : hosts_) {
    if (may_use(experiment, host.inventory)) rooms.push_back(whole(host.inventory));
  }
  return Search(experiment.spec(), std::move(rooms)).run();
}

std::vector<ExperimentId> World::waiting_in_order() const {
  std::vector<std::pair<int, ExperimentId>> order;
  for (const ExperimentId& id : model_->live) {
    const Experiment& experiment = model_->experiments.at(id);
    if (is_queued(experiment)) order.emplace_back(-experiment.spec().priority, id);
  }
  std::sort(order.begin(), order.end());
  std::vector<ExperimentId> ids;
  for (const auto& [priority, id] : order) ids.push_back(id);
  return ids;
}

// The first that still waits, though empty hosts would take it, finds room once all that ran before
// this pass is gone: who was placed behind it took nothing away for good.
void World::check_backfill(const std::vector<ExperimentId>& waited) {
  const FreeHosts empty = emptied(model_->free, false);
  auto head = waited.begin();
  for (; head != waited.end(); ++head) {
    const Experiment& experiment = model_->experiments.at(*head);
    if (!is_queued(experiment)) continue;
    const Choice choice{experiment.submission->host, experiment.excluded_hosts, nullptr};
    const double stretch = stretch_needed(*head, experiment.spec(), empty, choice);
    if (stretch > 1) return;  // waits for hosts that are idle, whose cpus it will share
    if (stretch > 0) break;
  }
  if (head == waited.end()) return;
  std::map<HostId, Room> rooms;
  const Experiment& waits = model_->experiments.at(*head);
  for (const auto& [id, free] : empty.all()) {
    if (may_use(waits, *free.host)) rooms.emplace(id, whole(*free.host));
  }
  bool any = false;
  for (auto behind = head + 1; behind != waited.end(); ++behind) {
    const Experiment& experiment = model_->experiments.at(*behind);
    if (experiment.phase != Phase::Placed) continue;
    any = true;
    if (experiment.spec().max_duration_ms > 0) continue;  // may end in time
    for (const Replica& replica : experiment.replicas) {
      const auto room = rooms.find(replica.seat.host);
      if (room == rooms.end()) continue;
      room->second.cpus -= replica.seat.cpus;
      room->second.memory_bytes -= static_cast<int64_t>(replica.seat.memory_bytes);
      room->second.gpus -= static_cast<int>(replica.seat.gpus.size());
      room->second.ports -= 1;
    }
  }
  if (!any) return;
  counts_.add(Seen::WentAhead);
  std::vector<Room> left;
  for (const auto& [id, room] : rooms) left.push_back(room);
  require(Search(waits.spec(), std::move(left)).run(),
          [&] { return "who goes ahead of " + to_string(*head) + " takes nothing it waits for"; });
}

}  // namespace dtrain::sim
