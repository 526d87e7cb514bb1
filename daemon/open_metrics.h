// How the daemon and what it runs fare, as text for Prometheus and whatever else reads OpenMetrics 1.0
// (github.com/prometheus/OpenMetrics). Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/histogram.h"
#include "daemon/model.h"
#include "schema/dtrain.pb.h"

namespace dtrain::daemon {

// What is counted since the daemon began.
struct Observed {
  std::map<State, uint64_t> ended;   // experiments, each member by itself
  uint64_t starts = 0;               // attempts of which all processes began
  uint64_t gave_way = 0;             // for others of a higher priority
  Histogram placing, committing;     // passes over the queue; transactions of the database
};

// Of the process itself.
struct OwnUsage {
  double cpu_seconds = 0;
  uint64_t memory_bytes = 0;         // resident
  uint64_t descriptors = 0;
  uint64_t disk_free_bytes = 0;      // where DTRAIN_HOME is
  double started_unix_seconds = 0;
};

// The last value of a metric that an experiment's output, or its event files, said.
struct SaidValue {
  ExperimentId experiment;
  std::string name;
  double value = 0;
};

// `usage`: of replicas that run, as Monitor::sample() fills it in.
struct Exposed {
  const Model& model;
  const Observed& observed;
  OwnUsage own;
  std::vector<pb::ReplicaUsage> usage;
  std::vector<SaidValue> values;
  TimeMs now = 0;
};

enum class MetricsFormat {
  OpenMetrics,   // application/openmetrics-text; version=1.0.0
  Prometheus,    // text/plain; version=0.0.4, which names the types of counters otherwise
};
std::string open_metrics_text(const Exposed& exposed, MetricsFormat format);

}  // namespace dtrain::daemon
