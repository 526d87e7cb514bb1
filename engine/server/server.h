// A parameter server: one process, one shard of the parameters, one loop.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/layout.h"
#include "engine/optimizer.h"
#include "engine/server/clocks.h"
#include "engine/server/doors.h"
#include "engine/server/first_hello.h"
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
  EngineSpec spec;
};

// What a server and its workers must agree on before any data is known.
uint64_t server_job(const std::string& experiment, const EngineSpec& spec, size_t servers, size_t workers);

// A Server holds its shard for the workers of one experiment.
// Owner: main, or a test. Thread: run() has one; stop() may come from any.
// Promises: garbage and lost workers cost their own connection, nothing else; an answered push is in
// the state that outlives a kill, once. A worker that waits in vain is told whom for.
// Never: ends by itself, spins, or sends anything unasked.
class Server {
 public:
  // `doors`: open ones, or it opens its own.
  static Result<std::unique_ptr<Server>> open(const ServerConfig& config, ServerPlan plan,
                                              std::optional<server::Doors> doors = {});
  ~Server();

  const server::Doors& doors() const { return doors_; }
  // Before run(): those who came before there was a server, the first of whom has said hello.
  void adopt(std::vector<std::unique_ptr<server::Link>> links);
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
    bool reads = false;   // its data still: it has not come yet, and listens
    Time looked_for = {};  // when that was seen, or not
  };

  Server(const ServerConfig& config, ServerPlan plan);

  // server.cc: connections and bytes
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
  void wait(Link& link, server::WaitFor what);
  void look_at_gate();
  void look_at_step();
  void look_at_end(Time now);
  void look_at_clock(Time now);
  void look_for_late(Time now);
  bool is_gone(size_t worker, Time now) const;
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
  const ServerPlan plan_;
  const bool sync_;
  const double deadline_;
  const uint64_t job_;
  const OptimizerKernel kernel_;
  Fd stop_;
  server::Doors doors_;
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

// Opens a server once a worker has said what the data is, and runs it until SIGTERM or SIGINT; `listening` is called
// before that. Call it before there are other threads.
Status run_server(const ServerConfig& config, const server::MakePlan& make_plan,
                  const std::function<Status(const server::Doors&)>& listening = {});

}  // namespace dtrain::engine
