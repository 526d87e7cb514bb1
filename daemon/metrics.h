// What the output of live experiments says about their metrics, kept so that neither a value is
// lost nor counted twice when the daemon dies at any moment.
//
// It is all derived from the journals: the store has what was read up to some place of a journal,
// and the rest of that is read again when the experiment is first asked about. Each byte of a
// replica's output has its offset, so that reading again what was read before changes nothing.
//
// Owner: daemon main. Thread: loop. Never: holds up output, or the end of an experiment, because of
// a journal or row that can't be read. Experiments that declare no metrics never get here.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "daemon/logs.h"
#include "daemon/metric_fold.h"
#include "daemon/model.h"
#include "daemon/store.h"

namespace dtrain::daemon {

class Metrics {
 public:
  // The store is told each time an experiment number printed so much.
  static constexpr uint64_t kSaveBytes = uint64_t{8} << 20;

  Metrics(Store& store, Logs& logs, uint64_t save_bytes = kSaveBytes)
      : store_(store), logs_(logs), save_bytes_(save_bytes) {}
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // Output that the journal has taken, or had before. The experiment is not over. Returns its value each time that its
  // set looks at it, until now (Climb::rungs); good until the next call.
  const std::vector<double>& take(const Experiment& experiment, const ReplicaId& replica, const pb::LogData& data);
  // The same where all output of one of its replicas is here: its last line is whole.
  std::vector<double> last_rungs(const Experiment& experiment, const ReplicaId& replica);
  // What the store is to keep of an experiment that is over, in the transaction that says so, also
  // where it said nothing. Nullopt when it can't be read now: values() reads it later. Then forget() it.
  std::optional<pb::MetricsRecord> last_record(const Experiment& experiment);
  void forget(const ExperimentId& id);
  // All of the number is over and stored.
  void close(uint32_t number);

  // By member: of experiments that said anything. `live`: the model has it.
  using Values = std::map<uint32_t, std::vector<pb::Metric>>;
  Result<Values> values(const Submission& submission, bool live);

 private:
  struct Open {
    explicit Open(const Spec& spec) : reader(spec.metrics, spec.search) {}
    MetricReader reader;
    std::unordered_map<uint32_t, MetricFold> members;  // that are not over
    std::set<uint32_t> unsaved;
    uint64_t unsaved_bytes = 0;
  };

  Result<Open*> open(const Submission& submission);
  Open* open_or_say(const Submission& submission);
  Status read_journal(uint32_t number, uint64_t from, const std::set<uint32_t>& over, Open& open);
  void save(uint32_t number, Open& open);

  Store& store_;
  Logs& logs_;
  const uint64_t save_bytes_;
  std::map<uint32_t, std::unique_ptr<Open>> open_;
  std::set<uint32_t> unopened_;  // of which it was said that they can't be
};

}  // namespace dtrain::daemon
