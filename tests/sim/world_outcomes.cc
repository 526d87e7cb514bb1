// What an end must follow from, told from the facts alone; and that who waits is not passed over.
#include <algorithm>
#include <functional>

#include "daemon/placement.h"
#include "daemon/placement_fitness.h"
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

bool may_use(const Choice& choice, const Host& host) {
  const auto& excluded = choice.excluded;
  return (choice.host.empty() || choice.host == host.name) &&
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
    require(experiment.start_failures < policy_.start_failures_per_host ||
                !experiment.excluded_hosts.empty(),
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
  if (outcome.state == State::Finished && experiment.is_shared()) {
    const auto next = model_->live.upper_bound(experiment.id);
    const bool members_left = next != model_->live.end() && next->number == experiment.id.number;
    require(!members_left || succeeded(replicas.front()),
            "what members share is ended after the last of them");
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
  const auto runs = [](const Replica& replica) { return replica.progress == Progress::Started; };
  require(experiment.start_failures == 0 ||
              !std::all_of(experiment.replicas.begin(), experiment.replicas.end(), runs),
          "once all have started no failed start counts");
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

std::optional<World::Stopped> World::being_stopped(const Event& event) const {
  const auto* exited = std::get_if<ReplicaExited>(&event);
  if (exited == nullptr) return std::nullopt;
  const auto found = model_->experiments.find(exited->replica.experiment);
  if (found == model_->experiments.end()) return std::nullopt;
  const Experiment& experiment = found->second;
  if (experiment.phase != Phase::Ending || experiment.outcome) return std::nullopt;
  return Stopped{experiment.id, experiment.restarts_used, experiment.start_failures};
}

void World::check_consequence(const Stopped& stopped) const {
  const Experiment& experiment = model_->experiments.at(stopped.id);
  require(!experiment.outcome && experiment.restarts_used == stopped.restarts_used,
          "an exit that a stop led to fails nobody and costs no restart");
}

// One restart for each replica that is launched again alone, and for each gang that begins anew after
// a failure: also when several failed for the one, or one in more than one way.
void World::check_restarts(const Experiment& experiment) {
  if (experiment.replicas.empty() || experiment.outcome) return;
  Spent& spent = spent_[experiment.id];
  int under_way = 0;
  for (const Replica& replica : experiment.replicas) {
    if (is_build(replica)) continue;
    if (replica.attempt != decider(experiment).attempt) {
      spent.alone.insert(replica.attempt);
      if (replica.pid != 0) spent.begun.insert(replica.attempt);
    }
    const bool failed = replica.exit && is_failure(*replica.exit) && !replica.end;
    under_way += failed || awaits_relaunch(experiment, replica);
  }
  const auto used = static_cast<int>(experiment.restarts_used);
  const auto alone = static_cast<int>(spent.alone.size());
  if (experiment.phase == Phase::Ending || experiment.phase == Phase::None) {
    under_way = 0;
    if (spent.ended_attempt != experiment.attempt) {
      spent.ended_attempt = experiment.attempt;
      if (experiment.wait_reason.starts_with("restart ")) {
        ++spent.gangs;
      } else {
        spent.let_go = used - alone - spent.gangs;
      }
    }
  }
  const auto told = [&] {
    return fmt::format("{}: {} used, {} launched alone, {} of them begun, {} gangs, {} let go, {} under way",
                       to_string(experiment.id), used, alone, spent.begun.size(), spent.gangs,
                       spent.let_go, under_way);
  };
  require(used <= alone + spent.gangs + spent.let_go + under_way,
          [&] { return "no restart is counted twice: " + told(); });
  require(used >= static_cast<int>(spent.begun.size()) + spent.gangs,
          [&] { return "each restart is counted: " + told(); });
}

std::optional<World::Stopped> World::being_unfit(const Event& event) const {
  const auto* failed = std::get_if<LaunchFailed>(&event);
  if (failed == nullptr || !failed->unfit) return std::nullopt;
  const auto found = model_->experiments.find(failed->experiment);
  if (found == model_->experiments.end() || found->second.over) return std::nullopt;
  const Experiment& experiment = found->second;
  const bool concerns = std::any_of(
      experiment.replicas.begin(), experiment.replicas.end(), [&](const Replica& r) {
        return r.attempt == failed->attempt && r.seat.host == failed->host && !r.lost &&
               (r.progress == Progress::Launched || r.progress == Progress::Prepared);
      });
  if (!concerns || experiment.outcome) return std::nullopt;
  return Stopped{experiment.id, experiment.restarts_used, experiment.start_failures};
}

void World::check_unfit(const Stopped& before, const HostId& host) {
  counts_.add(Seen::HostUnfit);
  said_unfit_[host].insert(before.id);
  const Experiment& experiment = model_->experiments.at(before.id);
  require(is_unfit(experiment, host), "a host that is unfit is remembered");
  require(experiment.restarts_used == before.restarts_used &&
              experiment.start_failures == before.start_failures,
          "what a host lacks costs no restart and is no failed start");
}

// What a host said counts until it says Hello anew; and nobody waits for a host that can't be.
void World::check_fitness() const {
  const bool tick_due = !model_->deadlines.empty() && model_->deadlines.begin()->first <= now_;
  for (const auto& [host, ids] : model_->unfit) {
    const auto said = said_unfit_.find(host);
    for (const ExperimentId& id : ids) {
      require(said != said_unfit_.end() && said->second.contains(id),
              "only who said so, since its Hello, is unfit");
    }
    for (const ExperimentId& id : ids) {
      const Experiment& experiment = model_->experiments.at(id);
      require(model_->place_wanted || tick_due || !is_queued(experiment) ||
                  !has_no_host_left(*model_, experiment, now_),
              [&] { return to_string(id) + " waits for no host at all"; });
    }
  }
}

// Failed for want of a host: then none that is known would do even empty, and others had time to come.
void World::check_given_up(const Experiment& experiment) {
  if (!experiment.outcome || !experiment.outcome->reason.ends_with("in dtrain.yml")) return;
  if (!given_up_.insert(experiment.id).second) return;
  counts_.add(Seen::UnfitEverywhere);
  require(restarted_ms_ == 0 || now_ >= restarted_ms_ + 10'000,
          "nobody is given up while hosts may yet come back");
  const Choice choice{experiment.submission->host, unfit_hosts(experiment), nullptr};
  require(stretch_needed(experiment.id, experiment.spec(), emptied(model_->free, true), choice) == 0,
          "nobody is given up whom a host could still take");
}

// Of each row that is written.
void World::check_committed(const Experiment& row) {
  if (!row.excluded_hosts.empty()) counts_.add(Seen::HostExcluded);
  for (const Replica& replica : row.replicas) {
    if (replica.lost) counts_.add(Seen::HostLost);
    if (!is_build(replica) && replica.attempt != decider(row).attempt) {
      counts_.add(Seen::RelaunchedAlone);
    }
  }
  if (!row.outcome) return;
  if (row.outcome->cause && row.outcome->cause->role == Role::Build) counts_.add(Seen::BuildFailed);
  const auto known = outcomes_.try_emplace(row.id, *row.outcome).first;
  require(known->second == *row.outcome, "an outcome is fixed once");
}

// Those placed in this pass: a host where starts failed is used when no other could take it, and of
// several the one that failed last only when nothing else is left at all.
void World::check_avoided(const std::vector<ExperimentId>& waited) {
  for (const ExperimentId& id : waited) {
    const Experiment& experiment = model_->experiments.at(id);
    const std::vector<HostId>& excluded = experiment.excluded_hosts;
    if (is_queued(experiment)) continue;
    for (const Replica& replica : experiment.replicas) {
      require(experiment.outcome || !is_unfit(experiment, replica.seat.host),
              "no gang is placed where what it names is known to be lacking");
    }
    if (experiment.unfit_hosts && !experiment.outcome) counts_.add(Seen::UnfitLeft);
    if (excluded.empty() || experiment.outcome) continue;
    const FreeHosts empty = emptied(model_->free, false);
    const auto others_could = [&, &whose = id](std::vector<HostId> without) {
      for (const HostId& unfit : unfit_hosts(experiment)) without.push_back(unfit);
      const Choice choice{experiment.submission->host, std::move(without), nullptr};
      return stretch_needed(whose, experiment.spec(), empty, choice) > 0;
    };
    bool used = false, used_last = false;
    for (const Replica& replica : experiment.replicas) {
      used |= std::find(excluded.begin(), excluded.end(), replica.seat.host) != excluded.end();
      used_last |= excluded.back() == replica.seat.host;
    }
    if (used) counts_.add(Seen::ExcludedTriedAgain);
    require(!used || !others_could(excluded),
            "no gang is placed on a host that was excluded for it while others could take it");
    require(!used_last || !others_could({excluded.back()}),
            "the host that failed last is the last to be tried again");
  }
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
    const double stretch =
        stretch_needed(*head, experiment.spec(), empty, choice_of(*model_, experiment));
    if (stretch > 1) return;  // waits for hosts that are idle, whose cpus it will share
    if (stretch > 0) break;
  }
  if (head == waited.end()) return;
  std::map<HostId, Room> rooms;
  const Experiment& waits = model_->experiments.at(*head);
  const Choice choice = choice_of(*model_, waits);
  for (const auto& [id, free] : empty.all()) {
    if (may_use(choice, *free.host)) rooms.emplace(id, whole(*free.host));
  }
  bool any = false;
  for (auto behind = head + 1; behind != waited.end(); ++behind) {
    const Experiment& experiment = model_->experiments.at(*behind);
    if (is_queued(experiment) || experiment.outcome) continue;
    any = true;
    if (experiment.spec().max_duration_ms > 0) continue;  // may end in time
    for (const Replica& replica : experiment.replicas) {
      const auto room = rooms.find(replica.seat.host);
      if (room == rooms.end() || is_build(replica)) continue;
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
