// `dtrain monitor`: what it draws. Pure: samples and a screen go in, text comes out.
#pragma once

#include <deque>
#include <map>
#include <string>

#include "cli/terminal.h"
#include "schema/dtrain.pb.h"

namespace dtrain::cli {

// CPU use of each replica over the last samples, for the sparklines of a live screen.
class CpuHistory {
 public:
  void add(const pb::MonitorSample& sample);
  // "▁▂▅█▇", newest at the right; empty without samples.
  std::string sparkline(const std::string& replica) const;

 private:
  std::map<std::string, std::deque<double>> samples_;
};

// RiseML's table. `history` null: without sparklines.
std::string render_monitor(const pb::MonitorSample& sample, const CpuHistory* history,
                           const Screen& screen);
// -g: a table of GPUs below each replica.
std::string render_gpus(const pb::MonitorSample& sample, const Screen& screen);
// Above both: why it waits, or how it ended; empty where there is nothing to say.
std::string render_reason(const pb::MonitorSample& sample, const Screen& screen);
std::string monitor_json(const std::string& id, const pb::MonitorSample& sample);

// Eight heights of block for values from 0 to `most`.
std::string sparkline_of(const std::deque<double>& values, double most);

// The sample's replicas in the order they are shown: running, coming up, ended, not yet begun;
// without builds and tensorboards.
std::vector<const pb::ReplicaUsage*> shown_replicas(const pb::MonitorSample& sample);

}  // namespace dtrain::cli
