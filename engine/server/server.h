// A parameter server: one process, one shard of the parameters, one loop.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/layout.h"
#include "engine/optimizer.h"
#include "engine/server/clocks.h"
#include "engine/server/link.h"
#include "engine/server/shard.h"
#include "schema/engine_spec.h"

namespace dtrain::engine {

struct ServerConfig {
  int index = 0;                     // of this server
  std::vector<std::string> servers;  // "host:port" of each
  std::vector<std::string> workers;  // of each, for messages
  std::string experiment;            // experiment_from_environment()
  std::string directory;             // for what must outlive a kill; empty: nothing does
  std::string data = {};             // what all must find of it
  int64_t most_ahead = 0;            // async, ssp: pushes that others may be ahead of worker 0; 0: any number
  Range last_epoch = {};             // its parts of all the training's; others end it no sooner than worker 0 begins it
  EngineSpec spec;
};

// What a server and its workers must agree on.
uint64_t server_job(const std::string& experiment, const EngineSpec& spec, const Layout& layout,
                    size_t servers, size_t workers, const std::string& data = {});

// A Server holds its shard for the workers of one experiment.
// Owner: main, or a test. Thread: run() has one; stop() may come from any.
// Promises: garbage and lost workers cost their own connection, nothing else; an answered push is in
// the state that outlives a kill, once. A worker that waits in vain is told whom for.
// Never: ends by itself, spins, or sends anything unasked.
class Server {
 public:
  // Listens at its own address, any port of that host if it is 0, and for workers on this host.
  static Result<std::unique_ptr<Server>> open(const ServerConfig& config, const Layout& layout);
  ~Server();

  int port() const { return listener_.port(); }
  // Where workers on this host connect to.
  const std::string& local_address() const { return local_address_; }
  // Until stop() or, if given, a descriptor is readable. Then the state goes, if the experiment is done:
  // workers other than 0 may be there until now.
  Status run(int ending = -1);
  void stop();

 private:
  using Link = server::Link;
  using Time = Link::Time;
  struct Worker {
    Link* link = nullptr;
    bool joined = false;
    bool left = false;  // before it lost its link
    Time lost;  // since when there is no link
    bool missed = false;  // it hangs, and the log says so
  };

  Server(const ServerConfig& config, const Layout& layout);

  // server.cc: connections and bytes
  Status listen();
  Status listen_locally(const std::string& address);
  void accept(Listener& listener);
  Status read(Link& link);
  void close(size_t index);

  // server_requests.cc: what workers ask for. An error refuses the worker.
  Status begin(Link& link);    // a header is there
  Status receive(Link& link);  // more of its payload is there
  Status finish(Link& link);   // all of it is there
  Status begin_push(Link& link);
  Status receive_push(Link& link);
  Status finish_push(Link& link);
  Status begin_node(Link& link);
  Status finish_node(Link& link);
  Status apply(Link& link);
  void answer(Link& link, server::ServerOp op);
  uint64_t deal_of(const Link& link);
  void answer_data(Link& link, int arena);
  void answer_squares(Link& link);

  // server_workers.cc: who is there, and who waits for whom
  Status hello(Link& link);
  Status hello_of_first(Link& link);
  Status agree_on_threads(const server::Frame& hello);
  void welcome(Link& link);
  void admit();
  void lost(Link& link);
  void forget(Link& link);
  void wait(Link& link, server::Wait what);
  void look_at_gate();
  void look_at_step();
  void look_at_end(Time now);
  void look_at_clock(Time now);
  void miss(size_t worker, Time now);
  void heard(Link& link);
  bool is_alive(size_t worker, Time now) const;
  bool may_push(size_t worker, Time now) const;
  bool is_far_ahead(const Link& link, Time now) const;
  bool first_is_busy(Time now) const;
  bool step_comes(Time now) const;
  bool slowest_are_busy(Time now) const;
  bool waits_for_who_lives(const Link& link, Time now) const;
  Error waited_in_vain(const Link& link, Time now) const;
  std::string name(size_t worker) const;

  const ServerConfig config_;
  const bool sync_;
  const double deadline_;
  const uint64_t job_;
  const OptimizerKernel kernel_;
  Fd stop_;
  std::string local_address_;
  Listener local_, listener_;  // the latter none with the data path gRPC, which listens itself
  std::unique_ptr<server::Shard> shard_;
  std::unique_ptr<server::StepSum> step_;  // sync only, once a worker has said its threads
  Clocks clocks_;
  std::vector<Worker> workers_;
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<float> discarded_;  // what was applied before comes here
  bool confirmed_ = false;        // the generation is that of the worker 0 that runs now
  uint64_t threads_ = 0;          // of each worker; 0: none was welcome yet
  Time accepts_after_ = {};       // new connections, which there was no room for
};

// Opens a server and runs it until SIGTERM or SIGINT; `opened` is called before it serves. Call it before
// there are other threads.
Status run_server(const ServerConfig& config, const Layout& layout,
                  const std::function<Status(const Server&)>& opened = {});

}  // namespace dtrain::engine
