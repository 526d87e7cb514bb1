// What may happen in a world, and how it comes to rest.
#include <algorithm>

#include "daemon/placement.h"
#include "daemon/queue.h"
#include "daemon/wait_reason.h"
#include "schema/tensorboard.h"
#include "sim/world.h"

namespace dtrain::sim {

using namespace daemon;

namespace {

constexpr size_t kLiveMax = 10;

}  // namespace

// By what the rules know of them, not by which roles each has: the core takes any.
Framework World::random_framework() {
  if (chance(40)) return Framework::Tensorflow;
  if (chance(50)) return Framework::Command;
  if (chance(50)) return Framework::Engine;
  if (!chance(50)) return Framework::Mpi;
  return steps_ % 2 == 0 ? Framework::Jax : Framework::Pytorch;
}

Spec World::random_spec() {
  Spec spec;
  spec.project = "sim";
  spec.framework = random_framework();
  spec.engine.in_step = chance(50);
  const auto resources = [&](size_t gpus) {
    Resources each;
    each.cpus = 0.5 + static_cast<double>(below(4)) * 0.5;
    each.memory_bytes = (uint64_t{1} + below(4)) << 30;
    each.gpus = static_cast<int>(below(gpus));
    return each;
  };
  const auto rule = [&](bool decides) {
    if (chance(50)) return OnFailure::Fail;
    if (chance(30)) return OnFailure::RestartOnSignal;
    return chance(60) || decides ? OnFailure::Restart : OnFailure::Ignore;
  };
  const auto add = [&](Role role, size_t count, size_t gpus, bool decides) {
    spec.roles.push_back({role, static_cast<int>(count), resources(gpus), {"x"}, rule(decides)});
  };
  if (chance(40)) {
    add(Role::Train, 1, 4, true);
  } else {
    add(Role::Master, 1, 2, true);
    add(Role::Worker, 1 + below(4), 2, false);
    if (chance(60)) add(Role::Ps, 1 + below(2), 1, false);
  }
  if (chance(15)) {
    const int of_workers = static_cast<int>(below(4)), of_servers = static_cast<int>(below(3));
    for (RoleSpec& one : spec.roles) one.per_host = one.role == Role::Train ? 0 : one.role == Role::Ps ? of_servers : of_workers;
  }
  if (const RoleSpec* const workers = spec.role(Role::Worker); workers != nullptr && chance(90)) {
    spec.elastic = Elastic{static_cast<int>(below(static_cast<size_t>(workers->count))), chance(10) ? Elastic::kNever : chance(60) ? 0 : 20'000};
  }
  spec.preemptible = some_give_way_ && chance(80);
  spec.suspend = one_in(30);
  spec.restart.limit = static_cast<int>(below(4));
  spec.restart.backoff_ms = chance(30) ? 0 : 2'000;
  make_failure_policy(spec);
  spec.completion = chance(30) ? Completion::AllWorkers : Completion::Decider;
  spec.finish_grace_ms = chance(30) ? 0 : 10'000;
  spec.stop_grace_ms = static_cast<int64_t>(below(5)) * 10'000;
  spec.priority = static_cast<int>(below(101));
  if (chance(30)) spec.install = {"pip install x"};
  if (chance(30)) spec.data["d"] = "/d";
  if (chance(30)) spec.max_duration_ms = 60'000 + static_cast<int64_t>(below(10)) * 60'000;
  if (chance(20)) spec.max_away_ms = 30'000 + static_cast<int64_t>(below(10)) * 20'000;
  if (chance(25)) {
    spec.parameters.push_back({"p", {"1", "2", "3"}});
    spec.concurrency = static_cast<int>(below(3));
    search(spec);
  }
  if (chance(spec.is_set() ? 60 : 30)) spec.roles.push_back(tensorboard_role());
  return spec;
}

// Some sets have members that differ, as where the YAML has lists.
std::vector<Spec> World::random_shapes(Spec& spec) {
  std::vector<Spec> shapes = shapes_of(spec);
  if (!spec.is_set() || chance(60)) return shapes;
  if (shapes.empty()) {
    shapes.assign(2, spec);
    shapes.front().roles.clear();
  }
  spec.parameters.front().path = {"p"};
  while (shapes.size() < 1 + spec.parameters.front().values.size()) {
    shapes.push_back(shapes.back());
    shapes.back().roles.front().resources.cpus += 0.5;
  }
  return shapes;
}

// Durable before it is an event.
void World::submit() {
  if (model_->live.size() >= kLiveMax) return;
  auto submission = std::make_shared<Submission>();
  submission->number = ++last_number_;
  submission->spec = random_spec();
  submission->user = chance(50) ? "anna" : "bert";
  come_after_others(submission->spec);
  submission->shapes = random_shapes(submission->spec);
  if (chance(10)) submission->host = hosts_[below(hosts_.size())].inventory.name;
  submissions_.push_back(submission);
  note("submit {}", submission->number);
  happen(Submitted{submission});
  if (!model_->sets.empty() && !model_->sets.rbegin()->second.held.empty()) {
    counts_.add(Seen::HeldByConcurrency);
  }
}

void World::kill() {
  if (model_->live.empty()) return;
  auto chosen = model_->live.begin();
  std::advance(chosen, static_cast<long>(below(model_->live.size())));
  const ExperimentId id = chance(30) ? chosen->set() : *chosen;
  if (traced_) note("kill {}", to_string(id));
  std::vector<std::pair<ExperimentId, bool>> concerned;  // and whether it only waits
  for (const ExperimentId& live : model_->live) {
    if (live.number != id.number || (id.member != 0 && live != id)) continue;
    const Experiment& experiment = model_->experiments.at(live);
    const bool waits = experiment.phase == Phase::None &&
                       std::all_of(experiment.replicas.begin(), experiment.replicas.end(), is_gone);
    concerned.emplace_back(live, waits && !experiment.outcome);
  }
  happen(KillWanted{id, chance(30)});
  for (const auto& [each, waits] : concerned) {
    const Experiment& experiment = model_->experiments.at(each);
    require(experiment.outcome.has_value(), "who is killed has its end at once");
    require(!waits || experiment.over, "who is killed while it waits is over at once");
    if (waits) counts_.add(Seen::KilledPending);
    waiting_.killed.push_back(each);
    killed_.insert(each);
  }
}

// What is suspended has nothing once its processes are gone, and goes on only when somebody says so: mostly soon, or little
// would run.
void World::suspend_some() {
  if (model_->live.empty()) return;
  const auto is_suspended = [&](const ExperimentId& id) { return model_->experiments.at(id).suspended; };
  const auto suspended = std::ranges::find_if(model_->live, is_suspended);
  if (suspended != model_->live.end() && chance(80)) return suspend(chance(50) ? suspended->set() : *suspended, false);
  auto chosen = model_->live.begin();
  std::advance(chosen, static_cast<long>(below(model_->live.size())));
  const ExperimentId id = chance(30) ? chosen->set() : *chosen;
  const auto found = model_->experiments.find(id);
  suspend(id, found == model_->experiments.end() ? chance(50) : !found->second.suspended);
}

void World::suspend(const ExperimentId& id, bool suspended) {
  if (traced_) note("{} {}", suspended ? "suspend" : "resume", to_string(id));
  for (const ExperimentId& live : model_->live) {
    if (live.number != id.number || (id.member != 0 && live != id)) continue;
    const Experiment& experiment = model_->experiments.at(live);
    if (experiment.outcome || experiment.suspended == suspended) continue;
    if (!suspended) {
      counts_.add(Seen::Resumed);
    } else if (experiment.phase != Phase::None) {
      counts_.add(Seen::SuspendedWhilePlaced);
    }
  }
  happen(SuspendWanted{id, suspended});
}

void World::pass_time(TimeMs by_ms) {
  now_ += by_ms;
  for (FakeHost& host : hosts_) host.keepers_watch(now_);
}

// When the daemon wakes by itself, not a moment later: what others do meanwhile is hardly done.
TimeMs World::until_deadline_ms() const {
  constexpr TimeMs kFarMs = 100'000;
  if (model_->deadlines.empty()) return 0;
  return std::clamp<TimeMs>(model_->deadlines.begin()->first - now_, 0, kFarMs);
}

void World::fault(FakeHost& host) {
  const size_t kind = below(100);
  if (kind < 30) {
    if (host.stream) note("{} loses its stream", host.inventory.name);
    host.lose_stream(random_);
  } else if (kind < 40) {
    end_stream(host);
  } else if (kind < 70) {
    if (host.runner_up) note("{}'s runner crashes", host.inventory.name);
    host.crash_runner(random_);
  } else if (kind < 78) {
    note("{} reboots", host.inventory.name);
    host.reboot(random_);
  } else if (kind < 86) {
    note("the daemon is restarted");
    restart_daemon();
  } else if (kind < 87) {
    leave(host);
  } else if (kind < 88) {
    drain(host, !drained_.contains(host.inventory.id));
  } else if (kind < 90) {
    note("{} is cut off", host.inventory.name);
    if (chance(50)) host.crash_runner(random_);
    host.lose_stream(random_);
    host.away_until_ms = now_ + static_cast<TimeMs>(below(200'000));
  } else {
    host.use_gpu(random_, false);
  }
}

// Of everything that ran there either another attempt follows, which no restart is used up for, or its end.
void World::leave(FakeHost& host) {
  const auto known = model_->hosts.find(host.inventory.id);
  if (known == model_->hosts.end() || known->second.leaving) return;
  note("{} leaves", host.inventory.name);
  std::map<ExperimentId, uint32_t> restarts;
  const auto seated = model_->seated.find(host.inventory.id);
  if (seated != model_->seated.end()) {
    for (const ExperimentId& id : seated->second) {
      const Experiment& experiment = model_->experiments.at(id);
      if (!experiment.outcome && experiment.phase != Phase::Ending) restarts[id] = experiment.restarts_used;
    }
  }
  happen(HostLeaves{host.inventory.id, "lent no longer"});
  for (const auto& [id, used] : restarts) {
    counts_.add(Seen::HostLeft);
    const Experiment& experiment = model_->experiments.at(id);
    if (experiment.outcome) continue;
    require(experiment.restarts_used == used, "that a host leaves uses up no restart");
    if (experiment.phase == Phase::Ending || experiment.phase == Phase::None) counts_.add(Seen::WentOnElsewhere);
    for (const Replica& replica : experiment.replicas) {
      const bool there = replica.seat.host == host.inventory.id && experiment.phase != Phase::None;
      require(!there || !is_alive(replica) || replica.leaves || experiment.phase == Phase::Ending,
              "nothing goes on where a host leaves");
    }
  }
}

// Durable before it is an event.
void World::drain(const FakeHost& host, bool drained) {
  const HostId& id = host.inventory.id;
  note("{} is {}", host.inventory.name, drained ? "drained" : "undrained");
  if (drained) drained_.insert(id);
  if (!drained) drained_.erase(id);
  if (drained && model_->seated.contains(id)) counts_.add(Seen::Drained);
  happen(HostDrained{id, drained});
}

// As a new one, once nothing of what it was is awaited.
void World::lend_again(FakeHost& host) {
  const auto known = model_->hosts.find(host.inventory.id);
  if (known == model_->hosts.end() || !known->second.leaving) return;
  if (model_->seated.contains(host.inventory.id) || !host.replicas.empty()) return;
  end_stream(host);
  host.lose_stream(random_);
  happen(HostRevoked{host.inventory.id});
}

void World::host_moves(FakeHost& host) {
  const size_t kind = below(100);
  const bool away = !calm_ && now_ < host.away_until_ms;
  if (!host.runner_up) {
    if (!away && (calm_ || kind < 10)) host.runner_up = true;
  } else if (!host.stream) {
    if (!away && (calm_ || kind < 20)) host.dial(now_, !calm_ && one_in(10));
  } else if (kind < 40) {
    host.receive(now_);
  } else if (kind < 45) {
    host.renew(now_);
  }
  // The daemon's end, which knows nothing of the runner's: what is in a stream is read all the
  // same.
  if (chance(35)) read_stream(host);
  if (chance(3)) see_closed(host);
  if (chance(calm_ ? 60 : 25)) host.act(random_, calm_);
}

// An attempt that is no more may say what it likes.
void World::replay_stale() {
  if (heard_.empty()) return;
  const Event event = heard_[below(heard_.size())];
  check_stale(event);
}

void World::step() {
  ++steps_;
  const size_t kind = below(1000);
  if (kind < 18)
    submit();
  else if (kind < 21)
    kill();
  else if (kind < 24 && one_in(2))
    suspend_some();
  else if (kind < 25)
    reach_rung();
  else if (kind >= 990)
    print_something();
  else if (kind < 26 && (pace_ms_ > 1'000 || one_in(4)))
    pass_time(static_cast<TimeMs>(20'000 + below(80'000)));
  else if (kind < 28)
    pass_time(until_deadline_ms());
  else if (kind < 80)
    pass_time(static_cast<TimeMs>(below(pace_ms_)));
  else if (kind < 92)
    fault(hosts_[below(hosts_.size())]);
  else if (kind < 110)
    replay_stale();
  else if (kind < 200)
    tick_if_due();
  else
    host_moves(hosts_[below(hosts_.size())]);
  if (chance(60)) end_turn();
  check_everything();
}

// What no host can ever take is refused at submit when the hosts are known; here they may not have
// been.
void World::kill_impossible() {
  for (const ExperimentId& id : std::set<ExperimentId>(model_->live)) {
    const Experiment& experiment = model_->experiments.at(id);
    if (!is_queued(experiment)) continue;
    const Choice choice{experiment.submission->host, {}, nullptr};
    const Placement placement = place(id, experiment.spec(), model_->free, choice);
    if (!exceeds_quota(experiment) && !std::holds_alternative<Never>(placement)) continue;
    killed_.insert(id);
    happen(KillWanted{id, false});
  }
}

void World::quiesce() {
  calm_ = true;
  note("calm");
  for (const FakeHost& host : hosts_) drain(host, false);
  for (const auto& submission : submissions_) suspend({submission->number, 0}, false);
  for (int round = 0; round < 20'000; ++round) {
    ++steps_;
    for (FakeHost& host : hosts_) {
      host_moves(host);
      lend_again(host);
      if (round % 8 == 0) host.use_gpu(random_, true);
    }
    if (round % 4 == 0) pass_time(500);
    tick_if_due();
    end_turn();
    check_everything();
    if (round % 1'000 == 999) kill_impossible();
    const bool empty = std::all_of(hosts_.begin(), hosts_.end(), [](const FakeHost& host) {
      return host.replicas.empty() && (!host.stream || host.stream->down.empty());
    });
    if (model_->live.empty() && empty) return;
  }
  std::string left;
  for (const ExperimentId& id : model_->live) {
    const Experiment& experiment = model_->experiments.at(id);
    left += fmt::format("\n  {} {} ({})", to_string(id), to_string(state_of(experiment)),
                        wait_reason(*model_, id, now_));
    for (const Replica& replica : experiment.replicas) {
      left += fmt::format(" [{} @{} progress {} lost {}]", to_string(replica.id), replica.attempt,
                          static_cast<int>(replica.progress), replica.lost);
    }
  }
  for (const FakeHost& host : hosts_) {
    for (const auto& [fact, replica] : host.replicas) {
      left += fmt::format("\n  on {}: {}@{} stage {}", host.inventory.name, to_string(fact.replica),
                          fact.attempt, static_cast<int>(replica.stage));
    }
  }
  throw Broken("everything comes to its end; left:" + left);
}

}  // namespace dtrain::sim
