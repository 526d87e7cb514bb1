// A host as the simulation has it: inventory, a runner that may be down, keepers and processes that
// outlive it, and a stream to the daemon that is ordered and reliable until it breaks.
//
// It follows the protocol and knows nothing of the daemon's rules; what really runs is known here and
// nowhere else, so this is where "at most one live copy" and "no GPU twice" are judged.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "daemon/lifecycle.h"

namespace dtrain::sim {

using daemon::HeldReplicaFact;
using daemon::TimeMs;

// The scheduler's translation of SendLaunch: with the seats.
struct LaunchMessage {
  ExperimentId experiment;
  uint32_t attempt = 0;
  std::vector<std::pair<Seat, int64_t>> replicas;   // with the lease of each
};
struct WelcomeMessage { TimeMs hello_sent_ms = 0; };
struct RenewedMessage { TimeMs sent_ms = 0; };
using ToRunner = std::variant<LaunchMessage, daemon::SendStart, daemon::SendStop, daemon::SendForget,
                              WelcomeMessage, RenewedMessage>;

struct HelloMessage { daemon::HostConnected event; TimeMs sent_ms = 0; };
struct RenewMessage { TimeMs sent_ms = 0; };
using FromRunner = std::variant<HelloMessage, RenewMessage, daemon::Event>;

enum class Stage { Preparing, Prepared, Running, Exited, Released };

struct FakeReplica {
  Seat seat;
  int64_t lease_ms = 0;
  TimeMs renewed_ms = 0;      // what its keeper counts the lease from
  Stage stage = Stage::Preparing;
  bool stopping = false;
  bool starts_at_once = false;   // Start came while the keeper was busy
  daemon::Exit exit;
  uint64_t pid = 0;
};

struct FakeHost {
  daemon::Host inventory;
  bool runner_up = false;
  bool connected = false;      // as the runner sees it
  bool daemon_sees = false;    // the daemon has this stream
  TimeMs last_renewal_ms = 0;  // sent, and known to be answered
  std::map<HeldReplicaFact, FakeReplica> replicas;
  std::deque<ToRunner> down;
  std::deque<FromRunner> up;

  void say(daemon::Event event) { if (connected) up.emplace_back(std::move(event)); }
  void break_stream();
  void dial(TimeMs now);
  void receive(TimeMs now, std::mt19937_64& random);
  // Moves one thing on: a preparation ends, a process exits, a keeper dies, a release is through.
  void act(TimeMs now, std::mt19937_64& random, bool calm);
  void enforce_leases(TimeMs now);   // by the keepers: runner and daemon may be gone
  void crash_runner();
  void reboot();
  bool is_running(const ReplicaId& replica) const;

 private:
  void prepare_more(const HeldReplicaFact& fact, std::mt19937_64& random, bool calm);
  void drop_launch(const ExperimentId& experiment, uint32_t attempt);
  void end(const HeldReplicaFact& fact, FakeReplica& replica, daemon::Exit exit);
  void start(const HeldReplicaFact& fact, FakeReplica& replica);
  void repeat_facts();
};

}  // namespace dtrain::sim
