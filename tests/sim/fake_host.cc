#include "sim/fake_host.h"

#include <algorithm>

namespace dtrain::sim {

namespace {

bool chance(std::mt19937_64& random, int percent) {
  return static_cast<int>(random() % 100) < percent;
}

daemon::Exit signalled(int signal) {
  daemon::Exit exit;
  exit.signal = signal;
  exit.code = 128 + signal;
  exit.cause = "killed by signal " + std::to_string(signal);
  return exit;
}

// Lines that some rule may be about, and seldom enough to be ended for.
void print(daemon::Exit& exit, std::mt19937_64& random) {
  if (chance(random, 70)) return;
  exit.printed.emplace_back(static_cast<uint32_t>(random() % 4), "x");
  exit.ended_for_line = chance(random, 10);
}

daemon::Exit random_exit(std::mt19937_64& random, bool calm) {
  daemon::Exit exit;
  if (calm) return exit;
  print(exit, random);
  if (chance(random, 70)) return exit;
  exit.code = 1 + static_cast<int>(random() % 3);
  exit.cause = "exit code " + std::to_string(exit.code);
  return exit;
}

}  // namespace

template <typename Function>
void FakeHost::for_each(const LaunchId& launch, Function function) {
  const HeldReplicaFact first{{launch.experiment, Role{}, 0}, 0};
  for (auto it = replicas.lower_bound(first);
       it != replicas.end() && it->first.replica.experiment == launch.experiment; ++it) {
    if (launch_of(it->first.replica, it->first.attempt) == launch) function(it->first, it->second);
  }
}

// ---- the stream

void FakeHost::lose_stream(std::mt19937_64& random) {
  if (!stream) return;
  while (!stream->up.empty() && chance(random, 50)) stream->up.pop_back();
  hang_up();
}

void FakeHost::hang_up() {
  stream->runner_open = false;
  stream->down.clear();
  stream = nullptr;
  welcomed = false;
  for (auto& [launch, failure] : failures) failure.told = false;
}

// Hello lists what is held; the facts follow the Welcome.
void FakeHost::dial(TimeMs now, bool dawdles) {
  stream = std::make_shared<Stream>();
  stream->dawdles = dawdles;
  unread.push_back(stream);
  gpus_at_hello_ = inventory.gpus;
  HelloMessage hello{{inventory, {}}, now, ++dialled};
  for (const auto& [fact, replica] : replicas) hello.event.held.push_back(fact);
  stream->up.emplace_back(std::move(hello));
}

void FakeHost::receive(TimeMs now) {
  if (stream->down.empty()) {
    if (!stream->daemon_open) hang_up();
    return;
  }
  if (!stream->daemon_open) counts.add(Seen::DeadDaemonHeard);
  const ToRunner message = std::move(stream->down.front());
  stream->down.pop_front();
  if (const auto* launch = std::get_if<LaunchMessage>(&message)) {
    on_launch(*launch);
  } else if (const auto* start = std::get_if<daemon::SendStart>(&message)) {
    on_start(*start, now);
  } else if (const auto* stop = std::get_if<daemon::SendStop>(&message)) {
    on_stop(*stop, now);
  } else if (const auto* forget = std::get_if<daemon::SendForget>(&message)) {
    on_forget(*forget);
  } else if (const auto* welcome = std::get_if<WelcomeMessage>(&message)) {
    on_welcome(*welcome, now);
  } else {
    contact_ms = std::get<RenewedMessage>(message).sent_ms;
    for (auto& [fact, replica] : replicas) replica.renewed_ms = contact_ms;
  }
}

// Every fact that the daemon may have missed is said again.
void FakeHost::on_welcome(const WelcomeMessage& welcome, TimeMs now) {
  welcomed = true;
  contact_ms = welcome.hello_sent_ms;
  if (inventory.gpus != gpus_at_hello_) say(daemon::HostChanged{inventory});
  for (auto& [launch, failure] : failures) {
    if (!failure.told) counts.add(Seen::FailureKept);
    say(failure.said);
    failure.told = true;
  }
  std::set<LaunchId> prepared;
  for (const auto& [fact, replica] : replicas) {
    const LaunchId launch = launch_of(fact.replica, fact.attempt);
    if (prepared.insert(launch).second) say_prepared_if(launch);
    if (replica.pid != 0)
      say(daemon::ReplicaStarted{fact.replica, fact.attempt, replica.pid, 1, inventory.id});
    if (replica.stage >= Stage::Exited) {
      counts.add(Seen::FactRepeated);
      say(daemon::ReplicaExited{fact.replica, fact.attempt, replica.exit, inventory.id});
    }
    if (replica.stage == Stage::Released) {
      say(daemon::ReplicaReleased{fact.replica, fact.attempt, "", inventory.id});
    }
  }
  renew(now);
}

void FakeHost::say_prepared_if(const LaunchId& launch) {
  bool all = true;
  for_each(launch, [&](const auto&, const FakeReplica& r) { all &= r.stage >= Stage::Prepared; });
  if (all) say(daemon::LaunchPrepared{inventory.id, launch});
}

// ---- what the daemon asks

void FakeHost::on_launch(const LaunchMessage& message) {
  const LaunchId& launch = message.launch;
  if (const auto failure = failures.find(launch); failure != failures.end()) {
    say(failure->second.said);
    return;
  }
  bool known = false;
  for (const auto& [seat, lease_ms] : message.replicas) {
    FakeReplica fresh;
    fresh.seat = seat;
    fresh.lease_ms = lease_ms;
    fresh.grace_ms = message.grace_ms;
    fresh.renewed_ms = contact_ms;
    fresh.names_data = message.names_data;
    known |= !replicas.try_emplace({seat.replica, launch.attempt}, fresh).second;
  }
  if (known) say_prepared_if(launch);
}

// The lease counts from the last renewal that was answered, not from when this came: it may have
// been under way for very long. Then nothing is started, and the next Hello asks again.
void FakeHost::on_start(const daemon::SendStart& begin, TimeMs now) {
  bool too_late = false;
  for_each(begin.id, [&](const auto& fact, FakeReplica& replica) {
    if (replica.stage != Stage::Prepared || replica.stopping) return;
    if (replica.lease_ms != 0 && now - contact_ms >= replica.lease_ms) {
      too_late = true;
      return;
    }
    replica.renewed_ms = contact_ms;
    replica.stage = Stage::Running;
    replica.pid = ++last_pid_;
    replica.stubborn = replica.pid % 4 == 0;
    say(daemon::ReplicaStarted{fact.replica, fact.attempt, replica.pid, 1, inventory.id});
  });
  if (!too_late) return;
  counts.add(Seen::StartTooLate);
  hang_up();
}

void FakeHost::on_stop(const daemon::SendStop& stop, TimeMs now) {
  for (const HeldReplicaFact& fact : stop.replicas) {
    const auto held = replicas.find(fact);
    if (held == replicas.end() || held->second.stage == Stage::Failed) {
      say(daemon::ReplicaReleased{fact.replica, fact.attempt, "", inventory.id});
      continue;
    }
    FakeReplica& replica = held->second;
    if (replica.stage >= Stage::Exited) continue;
    replica.stopping = true;
    const TimeMs kill_at_ms = now + stop.grace_ms;
    if (replica.kill_at_ms == 0 || kill_at_ms < replica.kill_at_ms) replica.kill_at_ms = kill_at_ms;
    if (replica.kill_at_ms <= now && replica.stage == Stage::Running)
      end(fact, replica, signalled(9));
  }
}

// The directory of a launch goes when all of it is forgotten; until then Hello names all of it.
void FakeHost::on_forget(const daemon::SendForget& forget) {
  for (const HeldReplicaFact& fact : forget.replicas) {
    const auto held = replicas.find(fact);
    if (held == replicas.end() || held->second.stage == Stage::Failed) continue;
    held->second.forgotten = true;
    held->second.stopping = true;
    const LaunchId launch = launch_of(fact.replica, fact.attempt);
    bool all = true;
    for_each(launch, [&](const auto&, const FakeReplica& replica) {
      all &= replica.forgotten && replica.stage == Stage::Released;
    });
    if (all) drop(launch);
  }
}

// ---- what happens by itself

void FakeHost::end(const HeldReplicaFact& fact, FakeReplica& replica, daemon::Exit exit) {
  replica.stage = Stage::Exited;
  replica.exit = std::move(exit);
  say(daemon::ReplicaExited{fact.replica, fact.attempt, replica.exit, inventory.id});
}

void FakeHost::end_launch(const LaunchId& launch) {
  counts.add(Seen::KeeperDied);
  daemon::Exit exit;
  exit.lost_keeper = true;
  exit.cause = "its keeper died";
  for_each(launch, [&](const auto& fact, FakeReplica& replica) {
    if (replica.stage < Stage::Exited) end(fact, replica, exit);
  });
}

void FakeHost::drop(const LaunchId& launch) {
  std::erase_if(replicas, [&](const auto& held) {
    return launch_of(held.first.replica, held.first.attempt) == launch;
  });
}

// It is held until the daemon was told of it.
void FakeHost::fail(const LaunchId& launch, int port, std::mt19937_64& random) {
  daemon::LaunchFailed failed{inventory.id, launch, "the disk is full", 0,
                              true};
  if (!broken && chance(random, 40)) {
    counts.add(Seen::PortTaken);
    failed.reason = "a stranger listens on the port";
    failed.port_taken = port;
  } else if (!broken && chance(random, 10)) {
    failed.reason = "there is no such python";
    failed.ours = false;
  }
  keep_nothing(launch, failed);
}

void FakeHost::keep_nothing(const LaunchId& launch, daemon::Event said) {
  for_each(launch, [](const auto&, FakeReplica& replica) { replica.stage = Stage::Failed; });
  failures[launch] = {said, welcomed};
  say(std::move(said));
}

void FakeHost::prepare_more(const HeldReplicaFact& fact, std::mt19937_64& random, bool calm) {
  const LaunchId launch = launch_of(fact.replica, fact.attempt);
  bool all_stopped = true;
  for_each(launch, [&](const auto&, const FakeReplica& r) { all_stopped &= r.stopping; });
  if (all_stopped) {
    for_each(launch, [&](const auto& each, FakeReplica& r) { end(each, r, signalled(15)); });
    return;
  }
  if (lacks_data && replicas.at(fact).names_data) {
    return keep_nothing(launch, daemon::LaunchFailed{inventory.id, launch,
                                                     "data d: /d is not there", 0, false, true});
  }
  if (!calm && (broken || chance(random, 12))) {
    return fail(launch, replicas.at(fact).seat.port, random);
  }
  if (fact.replica.role == Role::Build && chance(random, 40)) {
    counts.add(Seen::BuildCached);
    return keep_nothing(launch,
                        daemon::LaunchPrepared{inventory.id, launch, true});
  }
  for_each(launch, [](const auto&, FakeReplica& replica) {
    if (replica.stage == Stage::Preparing) replica.stage = Stage::Prepared;
  });
  say(daemon::LaunchPrepared{inventory.id, launch});
}

void FakeHost::act(std::mt19937_64& random, bool calm) {
  if (replicas.empty()) return;
  auto chosen = replicas.begin();
  std::advance(chosen, static_cast<long>(random() % replicas.size()));
  const HeldReplicaFact fact = chosen->first;
  const LaunchId launch = launch_of(fact.replica, fact.attempt);
  FakeReplica& replica = chosen->second;
  switch (replica.stage) {
    case Stage::Preparing:
      if (runner_up) prepare_more(fact, random, calm);
      return;
    case Stage::Failed:
      if (!failures.at(launch).told) return;
      failures.erase(launch);
      drop(launch);
      return;
    case Stage::Prepared:
      if (replica.stopping && runner_up)
        end(fact, replica, signalled(15));
      else if (!calm && chance(random, 2))
        end_launch(launch);
      return;
    case Stage::Running:
      if (!calm && chance(random, 1))
        end_launch(launch);
      else if (!calm && chance(random, 60))
        return;
      else if (replica.stopping && !replica.stubborn && chance(random, 90)) {
        daemon::Exit exit = signalled(15);
        print(exit, random);
        end(fact, replica, std::move(exit));
      }
      // Parameter servers never end by themselves.
      else if (fact.replica.role != Role::Ps)
        end(fact, replica, random_exit(random, calm));
      else if (!calm && chance(random, 10))
        end(fact, replica, random_exit(random, false));
      return;
    case Stage::Exited:
      if (!welcomed) return;  // its log must be acknowledged first
      replica.stage = Stage::Released;
      say(daemon::ReplicaReleased{fact.replica, fact.attempt, "", inventory.id});
      return;
    case Stage::Released:
      return;
  }
}

void FakeHost::use_gpu(std::mt19937_64& random, bool calm) {
  if (inventory.gpus.empty()) return;
  daemon::Gpu& gpu = inventory.gpus[random() % inventory.gpus.size()];
  const bool ours = std::any_of(replicas.begin(), replicas.end(), [&](const auto& held) {
    const std::vector<int>& gpus = held.second.seat.gpus;
    return std::find(gpus.begin(), gpus.end(), gpu.index) != gpus.end();
  });
  if (gpu.busy.empty() && (calm || ours)) return;
  if (gpu.busy.empty()) counts.add(Seen::GpuBusy);
  gpu.busy = gpu.busy.empty() ? "somebody" : "";
  say(daemon::HostChanged{inventory});
}

void FakeHost::keepers_watch(TimeMs now) {
  for (auto& [fact, replica] : replicas) {
    if (replica.stage != Stage::Running) continue;
    const TimeMs lease_ends_ms = replica.renewed_ms + replica.lease_ms + lag_ms;
    if (replica.lease_ms != 0 && lease_ends_ms <= now) {
      const TimeMs kill_at_ms = lease_ends_ms + replica.grace_ms;
      if (replica.kill_at_ms == 0) counts.add(Seen::LeaseEnded);
      if (replica.kill_at_ms == 0 || kill_at_ms < replica.kill_at_ms) {
        replica.kill_at_ms = kill_at_ms;
      }
      replica.stopping = true;
    }
    if (replica.kill_at_ms == 0 || replica.kill_at_ms > now) continue;
    if (lease_ends_ms <= now && replica.lease_ms != 0) counts.add(Seen::GraceAfterLease);
    end(fact, replica, signalled(9));
  }
}

// What was being prepared is lost with the runner; what it said Prepared for is on disk.
void FakeHost::crash_runner(std::mt19937_64& random) {
  runner_up = false;
  lacks_data = chance(random, 40);
  lose_stream(random);
  failures.clear();
  for (auto it = replicas.begin(); it != replicas.end();) {
    if (it->second.stage == Stage::Prepared) counts.add(Seen::PreparedRunnerRestarted);
    it = it->second.stage < Stage::Prepared ? replicas.erase(it) : std::next(it);
  }
}

// Its keepers are gone; whether the disk remembers them is another matter.
void FakeHost::reboot(std::mt19937_64& random) {
  crash_runner(random);
  if (chance(random, 50)) return replicas.clear();
  std::set<LaunchId> launches;
  for (const auto& [fact, replica] : replicas) {
    launches.insert(launch_of(fact.replica, fact.attempt));
  }
  for (const LaunchId& launch : launches) end_launch(launch);
}

}  // namespace dtrain::sim
