// From the output of an experiment's replicas to the values of its metrics.
//
// Plain values on the loop thread; no files, no clock. Promises: bytes count once, however often
// and in whatever pieces they come; memory is bounded, whatever replicas print.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/climb.h"
#include "schema/dtrain.pb.h"
#include "schema/ids.h"
#include "schema/line_pattern.h"
#include "schema/spec.h"

namespace dtrain::daemon {

// A longer line is not looked at.
inline constexpr size_t kMetricLineMaxBytes = 4096;

// Finds metrics in a line. Made once for all members of a set.
class MetricReader {
 public:
  // Patterns that parse_spec accepted.
  explicit MetricReader(const std::vector<Metric>& metrics, const Search& search = {});

  struct Found {
    size_t metric = 0;  // its place in the Spec
    double value = 0;
  };
  // In the order in which they stand there, those of a pattern behind those of `key=value`.
  // `found` is emptied first.
  void read(std::string_view line, std::vector<Found>& found) const;

  size_t size() const { return names_.size(); }
  const std::string& name(size_t metric) const { return names_[metric]; }

  // By what a set compares its members, and where it looks at them.
  struct Watched {
    size_t metric = 0;
    bool highest_is_best = false;
    std::optional<size_t> by;   // the metric that counts; none: the values of `metric`
    std::optional<StopEarly> stop;
  };
  const std::optional<Watched>& watched() const { return watched_; }

 private:
  void read_keys(std::string_view line, std::vector<Found>& found) const;

  std::vector<std::string> names_;
  std::vector<size_t> keys_;  // metrics without a pattern
  std::vector<std::pair<size_t, LinePattern>> patterns_;
  std::optional<Watched> watched_;
};

// A number as programs print it: "0.5", "+3e-4", "97%", "12,345.6", "nan", "\"12\"", "5)".
std::optional<double> parse_metric_value(std::string_view text);

// The metrics of one experiment or member. A replica of lower rank (Spec order: the decider comes
// first) takes a metric over from one of higher rank; a new attempt of a replica that says it again
// starts it afresh.
class MetricFold {
 public:
  // Output of a replica from `offset` on: what was taken before is passed over, what is missing in
  // between is lost, with the line that it tore.
  void take(const MetricReader& reader, const ReplicaId& replica, uint32_t attempt, uint64_t offset,
            std::string_view data);
  // No more will come: lines that never ended are whole now.
  void finish(const MetricReader& reader);
  // Of that replica.
  void finish(const MetricReader& reader, const ReplicaId& replica);

  // Climb::rungs() of what its set watches. What workers and servers print is not looked at.
  const std::vector<double>& rungs() const { return climb_.rungs(); }

  // Of the metrics that were said, in the Spec's order.
  std::vector<pb::Metric> values(const MetricReader& reader) const;
  // All of it, to go on later. `from` is of the same Spec.
  pb::MetricsRecord record(const MetricReader& reader) const;
  static MetricFold from(const pb::MetricsRecord& record, const MetricReader& reader);

 private:
  struct Value {
    double last = 0;
    double minimum = 0;
    double maximum = 0;
    uint64_t count = 0;
    ReplicaId replica;
    uint32_t attempt = 0;
  };
  struct Tail {
    uint32_t attempt = 0;
    uint64_t offset = 0;  // of the first byte that was not taken
    std::string line;     // what came since the last line break
    bool skipping = false;
    double counted = std::nan("");   // what the search counts, as it was last said in that attempt
  };

  void take_lines(const MetricReader& reader, const ReplicaId& replica, Tail& tail,
                  std::string_view data);
  void take_line(const MetricReader& reader, const ReplicaId& replica, Tail& tail, std::string_view line);
  void end_line(const MetricReader& reader, const ReplicaId& replica, Tail& tail);
  void climb(const MetricReader::Watched& watched, const ReplicaId& replica, Tail& tail);

  std::vector<Value> values_;  // by place in the Spec; empty until something was said
  Climb climb_;                // of what its set watches
  std::map<ReplicaId, Tail> tails_;
  std::vector<MetricReader::Found> found_;  // of one line; kept for its room
};

}  // namespace dtrain::daemon
