// A worker's view of the parameter servers: all of them as one arena.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/data/data_facts.h"
#include "engine/layout.h"
#include "engine/models/model.h"
#include "engine/server/lane.h"
#include "engine/server/tunnels.h"
#include "schema/engine_spec.h"

namespace dtrain::engine {

struct ServerClientConfig {
  int rank = 0;  // of this worker; 0 fills the servers
  int threads = 1;
  std::vector<std::string> servers;
  std::vector<std::string> workers;
  std::string experiment;  // experiment_from_environment()
  DataFacts data = {};     // what all must find of it
  uint64_t attempt = 0;    // DTRAIN_ATTEMPT, 0 without one
  EngineSpec spec;
  bool local_sockets = true;  // to servers on this host, instead of TCP
  Tunnels::Entrance through = {};  // where to connect to instead, if to anything
};

// A node of a step's tree: the sums of gradients over leaves [begin, end).
struct NodeSums {
  int begin = 0, end = 0;
  const float* values = nullptr;  // an arena
};

// A ServerClient exchanges gradients for parameters, with all servers at once.
// Owner: the worker. Thread: one calls; a thread of its own tells the servers that this worker lives
// while it computes.
// Promises: a server that is killed and started again within the deadline is found again, and what it
// had not answered is sent again, without being applied twice. Else the error names the server.
class ServerClient {
 public:
  // Workers other than 0 wait until worker 0 has filled the servers.
  static Result<std::unique_ptr<ServerClient>> join(const ServerClientConfig& config,
                                                    const Layout& layout);
  ~ServerClient();

  // Worker 0's first call unless it has connected again: parameters and optimiser state (as many
  // arenas as the optimiser has), which have seen so many updates, for steps from `begun_at` on.
  Status fill(std::span<const float* const> arenas, uint64_t updates, uint64_t begun_at);

  // This worker's pushes so far, on the server that knows of most, in sync of fewest; the next is one more.
  // Not 0 at the start of a worker that replaces a lost one. With ssp also those of the slowest of the
  // others, where this one was not counted for a while.
  uint64_t pushes() const { return pushes_; }
  // The step that worker 0 began at: pushes come on top of it.
  uint64_t begun_at() const { return begun_at_; }
  // Updates of the parameters that the last answer had seen: the steps of an optimiser.
  uint64_t updates() const { return updates_; }

  // async, ssp: which part of the training's samples is this worker's until its next push, which is of it. Parts are
  // dealt out in order from 0 on, to whoever pushes next, each to one worker. Who comes again has the one that it had; who
  // never does, leaves it undone.
  uint64_t deal() const { return deal_; }

  Status pull(float* params);
  // async, ssp, worker 0: once the other workers have left, as far as they are heard of.
  Status pull_last(float* params);
  // One arena of the servers: 0 parameters, 1 and 2 optimiser state.
  Status read(int arena, float* values);

  // What all workers' updates since the servers were filled were computed from, by the last answer; correct is 0.
  Outcome learned() const;

  // async, ssp: a gradient, and what it was computed from, which the servers apply at once; then the parameters, unless
  // null.
  Status push(const float* grads, double learning_rate, double gradient_scale, float* params, const Outcome& of = {});
  // sync: this worker's nodes of the step's tree, over `of.rows`; then the parameters after the step.
  // With backup workers the step may have been done without this one; pushes() then tells how far the
  // others are. A step that `needs_first` is not done without worker 0, who may read() what the step before
  // left until it pushes, or lets go.
  Status push_step(std::span<const NodeSums> nodes, const Outcome& of, double learning_rate,
                   float* params, bool needs_first = false);

  // Worker 0: the next step may be done without it, whoever says that it needs it.
  Status let_go();

  // The worker is done; nobody waits for it any more.
  Status leave();
  // Worker 0, when the experiment is done: the servers forget what they keep for a restart when they end.
  Status finish();

 private:
  // The factor of a sum over so many samples.
  struct Clip {
    double scale = 0, samples = 1;
  };

  ServerClient(const ServerClientConfig& config, const Layout& layout);
  static uint64_t bytes_of(const server::Lane& lane);
  server::Frame frame(server::ServerOp op) const;
  Status connect(server::Lane& lane, Deadline& deadline);
  void find_again(server::Lane& lane, Deadline deadline);
  Status ask_all(server::Frame frame, float* data);
  Status exchange(bool fills = false);
  Clip clipped() const;
  void catch_up(const server::Frame& (server::Lane::*said)() const);
  void note_answers();
  void beat();
  double beats_every() const;  // seconds

  const ServerClientConfig config_;
  const int arenas_;
  server::Introduction introduction_;
  std::vector<server::Lane> lanes_;  // of servers that hold anything
  uint64_t pushes_ = 0, updates_ = 0, begun_at_ = 0, deal_ = 0;
  bool filled_ = false;  // by this one, worker 0

  std::mutex mutex_;  // who uses the connections: the calls, or the heartbeat
  std::condition_variable ending_;
  bool ends_ = false;
  std::thread heart_;
};

}  // namespace dtrain::engine
