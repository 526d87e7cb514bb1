// A host as the simulation has it: inventory, a runner that may be down, keepers and processes that
// outlive it, and streams to the daemon.
//
// It follows the protocol and knows nothing of the daemon's rules; what really runs is known here
// and nowhere else, so this is where "at most one live copy" and "no GPU twice" are judged.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "daemon/lifecycle.h"
#include "sim/seen.h"

namespace dtrain::sim {

using daemon::HeldReplicaFact;
using daemon::TimeMs;

// The scheduler's translation of SendLaunch: with the seats.
struct LaunchMessage {
  LaunchId launch;
  int64_t grace_ms = 0;
  bool names_data = false;
  std::vector<std::pair<Seat, int64_t>> replicas;  // with the lease of each
};
struct WelcomeMessage {
  TimeMs hello_sent_ms = 0;
};
struct RenewedMessage {
  TimeMs sent_ms = 0;
};
using ToRunner = std::variant<LaunchMessage, daemon::SendStart, daemon::SendStop,
                              daemon::SendForget, WelcomeMessage, RenewedMessage>;

struct HelloMessage {
  daemon::HostConnected event;
  TimeMs sent_ms = 0;
  uint64_t dialled = 0;  // grows from stream to stream of a host, as its clock does
};
struct RenewMessage {
  TimeMs sent_ms = 0;
};
using FromRunner = std::variant<HelloMessage, RenewMessage, daemon::Event>;

// One stream: ordered both ways until an end breaks it. The other end reads on for a while: what
// was under way arrives up to some point, and then it sees the break.
struct Stream {
  std::deque<FromRunner> up;
  std::deque<ToRunner> down;
  bool runner_open = true;
  bool daemon_open = true;
  bool greeted = false;  // its Hello was read
  bool dawdles = false;  // its Hello takes very long
  // What the daemon said on it: nothing is said twice.
  std::set<LaunchId> starts;
  std::set<HeldReplicaFact> launches;
};

enum class Stage { Preparing, Failed, Prepared, Running, Exited, Released };

struct FakeReplica {
  Seat seat;
  int64_t lease_ms = 0;
  int64_t grace_ms = 0;
  TimeMs renewed_ms = 0;  // what its keeper counts the lease from
  TimeMs kill_at_ms = 0;  // when the grace of whatever stops it is over; 0: nothing does
  Stage stage = Stage::Preparing;
  bool stopping = false;
  bool stubborn = false;  // ends by itself, or when it is killed
  bool forgotten = false;
  bool names_data = false;
  daemon::Exit exit;
  uint64_t pid = 0;
};

class FakeHost {
 public:
  FakeHost(daemon::Host has, int64_t keepers_lag_ms, bool is_broken)
      : inventory(std::move(has)), lag_ms(keepers_lag_ms), broken(is_broken) {}

  // What became of a launch that is held no more: it failed, or was a build with nothing to do.
  struct Failure {
    daemon::Event said;
    bool told = false;
  };

  daemon::Host inventory;
  int64_t lag_ms;            // how late its keepers' clocks ring
  bool broken;               // prepares nothing until all is calm
  bool lacks_data = false;   // another answer each time its runner begins
  TimeMs away_until_ms = 0;  // cut off: nobody dials
  uint64_t dialled = 0;
  bool runner_up = false;
  bool welcomed = false;                       // the runner may say facts
  TimeMs contact_ms = 0;                       // sent, and known to be answered
  std::shared_ptr<Stream> stream;              // the runner's; null between two
  std::shared_ptr<Stream> at_daemon;           // the one the daemon takes for the host's
  std::deque<std::shared_ptr<Stream>> unread;  // the daemon may still find something in them
  std::map<HeldReplicaFact, FakeReplica> replicas;
  std::map<LaunchId, Failure> failures;
  Counts counts;

  // The network or the runner breaks it: of what it carries up, the last part is lost.
  void lose_stream(std::mt19937_64& random);
  void dial(TimeMs now, bool dawdles);
  // The runner reads one message, or sees that the daemon has gone.
  void receive(TimeMs now);
  // Moves one thing on: a preparation ends, a process exits, a keeper dies, a release is through.
  void act(std::mt19937_64& random, bool calm);
  void use_gpu(std::mt19937_64& random, bool calm);  // by a stranger
  void renew(TimeMs now) {
    if (welcomed) stream->up.emplace_back(RenewMessage{now});
  }
  void keepers_watch(TimeMs now);  // leases and graces: runner and daemon may be gone
  void crash_runner(std::mt19937_64& random);
  void reboot(std::mt19937_64& random);

 private:
  void hang_up();
  void say(daemon::Event event) {
    if (welcomed) stream->up.emplace_back(std::move(event));
  }
  void on_launch(const LaunchMessage& launch);
  void on_start(const daemon::SendStart& start, TimeMs now);
  void on_stop(const daemon::SendStop& stop, TimeMs now);
  void on_forget(const daemon::SendForget& forget);
  void on_welcome(const WelcomeMessage& welcome, TimeMs now);
  void prepare_more(const HeldReplicaFact& fact, std::mt19937_64& random, bool calm);
  void fail(const LaunchId& launch, int port, std::mt19937_64& random);
  void keep_nothing(const LaunchId& launch, daemon::Event said);
  void say_prepared_if(const LaunchId& launch);
  void drop(const LaunchId& launch);
  void end(const HeldReplicaFact& fact, FakeReplica& replica, daemon::Exit exit);
  void end_launch(const LaunchId& launch);  // with its keeper
  template <typename Function>
  void for_each(const LaunchId& launch, Function function);

  uint64_t last_pid_ = 1'000;
  std::vector<daemon::Gpu> gpus_at_hello_;
};

}  // namespace dtrain::sim
