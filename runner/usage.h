// What replicas use, once a second, while somebody looks.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "runner/held_launch.h"
#include "runner/nvml.h"
#include "runner/outbox.h"
#include "runner/process_tree.h"

namespace dtrain::runner {

struct UsageOptions {
  std::string host_name;
  double host_cpus = 0;
  uint64_t host_memory_bytes = 0;
  const Nvml* nvml = nullptr;  // null: no GPU figures
};

// UsageMonitor samples the trees of the experiments that are watched and reports them.
// Owner: Agent. Thread: loop. With nobody watching it does nothing at all.
class UsageMonitor {
 public:
  using Launches = std::map<LaunchId, std::unique_ptr<HeldLaunch>>;
  UsageMonitor(boost::asio::io_context& loop, UsageOptions options, Outbox& outbox,
               const Launches& launches);
  UsageMonitor(const UsageMonitor&) = delete;
  UsageMonitor& operator=(const UsageMonitor&) = delete;

  // Experiment ids as the daemon writes them; a set's number means its members too. Empty: stop.
  void watch(std::set<std::string> experiments);

 private:
  struct Before {
    int64_t at_ms = 0;
    double cpu_seconds = 0;
  };
  void sample();
  void schedule(std::chrono::milliseconds after);
  void add(const HeldLaunch& launch, const Replica& replica, const ProcessTable& table, pb::UsageReport& report,
           std::map<std::string, Before>& now);
  bool is_watched(const HeldLaunch& launch) const;

  UsageOptions options_;
  Outbox& outbox_;
  const Launches& launches_;
  std::set<std::string> watched_;
  std::map<std::string, Before> before_;  // by replica and attempt: what a rate is taken from
  boost::asio::steady_timer timer_;
};

}  // namespace dtrain::runner
