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

daemon::Exit random_exit(std::mt19937_64& random, bool calm) {
  daemon::Exit exit;
  if (calm || chance(random, 70)) return exit;
  if (chance(random, 20)) {
    exit.lost_keeper = true;
    exit.cause = "its keeper died";
  } else {
    exit.code = 1 + static_cast<int>(random() % 3);
    exit.cause = "exit code " + std::to_string(exit.code);
  }
  return exit;
}

}  // namespace

void FakeHost::break_stream() {
  connected = false;
  daemon_sees = false;
  down.clear();
  up.clear();
}

// Hello lists what is held, and after it every fact is said again.
void FakeHost::dial(TimeMs now) {
  break_stream();
  connected = true;
  HelloMessage hello{{inventory, {}}, now};
  for (const auto& [fact, replica] : replicas) hello.event.held.push_back(fact);
  up.emplace_back(std::move(hello));
}

void FakeHost::repeat_facts() {
  for (const auto& [fact, replica] : replicas) {
    const ExperimentId& id = fact.replica.experiment;
    const uint32_t attempt = fact.attempt;
    if (replica.stage >= Stage::Prepared) {
      const bool all = std::all_of(replicas.begin(), replicas.end(), [&](const auto& other) {
        return other.first.replica.experiment != id || other.first.attempt != attempt ||
               other.second.stage >= Stage::Prepared;
      });
      if (all) say(daemon::LaunchPrepared{inventory.id, id, fact.attempt});
    }
    if (replica.pid != 0) say(daemon::ReplicaStarted{fact.replica, fact.attempt, replica.pid, 1});
    if (replica.stage >= Stage::Exited) {
      say(daemon::ReplicaExited{fact.replica, fact.attempt, replica.exit});
    }
    if (replica.stage == Stage::Released) {
      say(daemon::ReplicaReleased{fact.replica, fact.attempt, "", inventory.id});
    }
  }
}

void FakeHost::receive(TimeMs now, std::mt19937_64& random) {
  const ToRunner message = std::move(down.front());
  down.pop_front();
  if (const auto* launch = std::get_if<LaunchMessage>(&message)) {
    for (const auto& [seat, lease_ms] : launch->replicas) {
      FakeReplica fresh;
      fresh.seat = seat;
      fresh.lease_ms = lease_ms;
      fresh.renewed_ms = last_renewal_ms;
      replicas.try_emplace({seat.replica, launch->attempt}, fresh);
    }
    return;
  }
  if (const auto* renewed = std::get_if<RenewedMessage>(&message)) {
    last_renewal_ms = renewed->sent_ms;
    for (auto& [fact, replica] : replicas) replica.renewed_ms = renewed->sent_ms;
    return;
  }
  if (const auto* welcome = std::get_if<WelcomeMessage>(&message)) {
    last_renewal_ms = welcome->hello_sent_ms;
    for (auto& [fact, replica] : replicas) replica.renewed_ms = welcome->hello_sent_ms;
    repeat_facts();
    return;
  }
  if (const auto* forget = std::get_if<daemon::SendForget>(&message)) {
    for (const HeldReplicaFact& fact : forget->replicas) replicas.erase(fact);
    return;
  }
  if (const auto* begin = std::get_if<daemon::SendStart>(&message)) {
    for (auto& [fact, replica] : replicas) {
      if (fact.replica.experiment == begin->experiment && fact.attempt == begin->attempt &&
          replica.stage == Stage::Prepared && !replica.stopping) {
        start(fact, replica);
      }
    }
    return;
  }
  const auto& stop = std::get<daemon::SendStop>(message);
  for (const HeldReplicaFact& fact : stop.replicas) {
    const auto held = replicas.find(fact);
    if (held == replicas.end()) {
      say(daemon::ReplicaReleased{fact.replica, fact.attempt, "", inventory.id});
      continue;
    }
    held->second.stopping = true;
    if (stop.grace_ms == 0 && held->second.stage < Stage::Exited) {
      end(fact, held->second, signalled(9));
    }
  }
  (void)now;
  (void)random;
}

void FakeHost::start(const HeldReplicaFact& fact, FakeReplica& replica) {
  static uint64_t next_pid = 1000;
  replica.stage = Stage::Running;
  replica.pid = ++next_pid;
  if (runner_up) say(daemon::ReplicaStarted{fact.replica, fact.attempt, replica.pid, 1});
}

void FakeHost::end(const HeldReplicaFact& fact, FakeReplica& replica, daemon::Exit exit) {
  replica.stage = Stage::Exited;
  replica.exit = std::move(exit);
  if (runner_up) say(daemon::ReplicaExited{fact.replica, fact.attempt, replica.exit});
}

void FakeHost::drop_launch(const ExperimentId& experiment, uint32_t attempt) {
  std::erase_if(replicas, [&](const auto& held) {
    return held.first.replica.experiment == experiment && held.first.attempt == attempt;
  });
}

void FakeHost::prepare_more(const HeldReplicaFact& fact, std::mt19937_64& random, bool calm) {
  const ExperimentId id = fact.replica.experiment;
  const bool stopped = replicas.at(fact).stopping;
  if (stopped) {
    replicas.at(fact).stage = Stage::Released;
    say(daemon::ReplicaReleased{fact.replica, fact.attempt, "", inventory.id});
    return;
  }
  if (!calm && chance(random, 12)) {
    daemon::LaunchFailed failed{inventory.id, id, fact.attempt, "the disk is full", 0, true};
    if (chance(random, 40)) {
      failed.reason = "a stranger listens on the port";
      failed.port_taken = replicas.at(fact).seat.port;
    } else if (chance(random, 10)) {
      failed.reason = "there is no such python";
      failed.ours = false;
    }
    drop_launch(id, fact.attempt);
    say(failed);
    return;
  }
  for (auto& [other, replica] : replicas) {
    if (other.replica.experiment == id && other.attempt == fact.attempt &&
        replica.stage == Stage::Preparing) {
      replica.stage = Stage::Prepared;
    }
  }
  say(daemon::LaunchPrepared{inventory.id, id, fact.attempt});
}

void FakeHost::act(TimeMs now, std::mt19937_64& random, bool calm) {
  (void)now;
  if (replicas.empty()) return;
  auto chosen = replicas.begin();
  std::advance(chosen, static_cast<long>(random() % replicas.size()));
  const HeldReplicaFact fact = chosen->first;
  FakeReplica& replica = chosen->second;
  switch (replica.stage) {
    case Stage::Preparing:
      if (runner_up) prepare_more(fact, random, calm);
      return;
    case Stage::Prepared:
      if (replica.stopping && runner_up) end(fact, replica, signalled(15));
      else if (!calm && chance(random, 2)) end(fact, replica, random_exit(random, false));
      return;
    case Stage::Running:
      if (replica.stopping) end(fact, replica, signalled(15));
      // Parameter servers never end by themselves.
      else if (replica.seat.replica.role != Role::Ps) end(fact, replica, random_exit(random, calm));
      else if (!calm && chance(random, 10)) end(fact, replica, random_exit(random, false));
      return;
    case Stage::Exited:
      if (!runner_up || !connected) return;   // its log must be acknowledged first
      replica.stage = Stage::Released;
      say(daemon::ReplicaReleased{fact.replica, fact.attempt, "", inventory.id});
      return;
    case Stage::Released: return;
  }
}

void FakeHost::enforce_leases(TimeMs now) {
  for (auto& [fact, replica] : replicas) {
    if (replica.lease_ms == 0 || replica.stage >= Stage::Exited) continue;
    if (replica.stage < Stage::Running || now - replica.renewed_ms < replica.lease_ms) continue;
    end(fact, replica, signalled(15));
  }
}

// What was being prepared is lost with the runner; what it said Prepared for is on disk.
void FakeHost::crash_runner() {
  runner_up = false;
  break_stream();
  std::erase_if(replicas, [](const auto& held) { return held.second.stage == Stage::Preparing; });
}

void FakeHost::reboot() {
  crash_runner();
  replicas.clear();
}

bool FakeHost::is_running(const ReplicaId& id) const {
  return std::any_of(replicas.begin(), replicas.end(), [&](const auto& held) {
    return held.first.replica == id && held.second.stage == Stage::Running;
  });
}

}  // namespace dtrain::sim
