// TensorBoard's event files: TFRecords of the Event message, scalars only. A record is written by one
// call, so that a reader never sees half of one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "schema/fd.h"
#include "schema/result.h"

namespace dtrain::engine {

// Owner: who trains. A training that goes on after a restart writes a file of its own; TensorBoard reads
// all files of a folder, in the order of their names, which is that in which they were made.
class EventFile {
 public:
  // What comes from `first_step` on stands in place of what earlier files have: it says so, and
  // TensorBoard forgets what the steps were that a lost training had gone on to.
  static Result<EventFile> create(const std::filesystem::path& folder, int64_t first_step);

  // At the present time. A failed write leaves no part of a record, and is forgotten: training is worth
  // more than its curve.
  void scalar(std::string_view tag, int64_t step, double value);

 private:
  explicit EventFile(Fd fd) : fd_(std::move(fd)) {}
  bool write(std::string_view event);

  Fd fd_;  // none once a record could not be taken back
  uint64_t bytes_ = 0;
};

// One Event message each. tensorflow/core/util/event.proto, framework/summary.proto.
std::string start_event(double wall_time, int64_t step);
std::string scalar_event(double wall_time, int64_t step, std::string_view tag, float value);

}  // namespace dtrain::engine
