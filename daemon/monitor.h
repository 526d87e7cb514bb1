// Who monitors what: hosts sample only experiments somebody looks at, once a second, and each viewer
// gets one sample a second with every replica of its experiment.
//
// Owner: daemon main. Thread: loop. Costs nothing while nobody looks.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <set>
#include <string>

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

  grpc::ServerWriteReactor<pb::MonitorSample>* start(const pb::MonitorRequest& request);
  void on_usage(const pb::UsageReport& report);

 private:
  class Viewer;

  void add(Viewer* viewer);
  void remove(Viewer* viewer);
  void tell_hosts();
  void tick();
  Result<pb::MonitorSample> sample(const IdPattern& pattern);

  boost::asio::io_context& loop_;
  Scheduler& scheduler_;
  RunnerApi& runners_;
  std::set<Viewer*> viewers_;
  std::map<std::string, pb::ReplicaUsage> latest_;   // by replica id
  boost::asio::steady_timer second_;
};

}  // namespace dtrain::daemon
