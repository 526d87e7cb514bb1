// Who monitors what: hosts sample only experiments somebody looks at, once a second, and each viewer
// gets one sample a second with every replica of its experiment. Who asks for all (all_usage) looks at all of them, for a while.
//
// Owner: daemon main. Thread: loop. Costs nothing while nobody looks.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "daemon/reactor.h"
#include "daemon/scheduler.h"
#include "schema/dtrain.grpc.pb.h"

namespace dtrain::daemon {

class RunnerApi;

class Monitor {
 public:
  Monitor(boost::asio::io_context& loop, Scheduler& scheduler, RunnerApi& runners);
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  std::shared_ptr<WriteStream<pb::MonitorSample>> start(grpc::CallbackServerContext& call, const pb::MonitorRequest& request);
  void on_usage(const pb::UsageReport& report);
  // Of all replicas that run the newest sample, if there is one yet. For two minutes more come.
  std::vector<pb::ReplicaUsage> all_usage();

 private:
  class Viewer;

  void add(Viewer* viewer);
  void remove(Viewer* viewer);
  void tell_hosts();
  void begin_to_tick();
  void tick();
  void forget_gone();
  bool all_are_watched() const;
  void fill_in(pb::ReplicaUsage& usage, const Replica& replica) const;
  Result<pb::MonitorSample> sample(const IdPattern& pattern);

  boost::asio::io_context& loop_;
  Scheduler& scheduler_;
  RunnerApi& runners_;
  std::set<Viewer*> viewers_;
  std::map<std::string, pb::ReplicaUsage> latest_;   // by replica id
  std::chrono::steady_clock::time_point all_until_;
  bool ticks_ = false;
  static constexpr size_t kKeptAtLeast = 1'000;
  size_t most_kept_ = kKeptAtLeast;   // of latest_, until it is seen what has ended
  boost::asio::steady_timer second_;
};

}  // namespace dtrain::daemon
