// Output that was lost piece by piece, as it is on a full disk, told of once with the sum.
//
// Owner: whoever follows a log. Promises: every chunk comes out, in order; only such as say nothing
// but that the output goes on to be lost become one.
#pragma once

#include <optional>
#include <utility>

#include "schema/dtrain.pb.h"

namespace dtrain::cli {

class LostOutput {
 public:
  template <typename Print>
  void add(const pb::LogChunk& chunk, Print print) {
    if (waiting_ && !goes_on(chunk)) flush(print);
    if (!waiting_ && !is_only_loss(chunk)) return print(chunk);
    pb::LogChunk sum = chunk;
    if (waiting_) sum.set_dropped_bytes(sum.dropped_bytes() + waiting_->dropped_bytes());
    waiting_.reset();
    if (!is_only_loss(sum)) return print(sum);
    waiting_ = std::move(sum);
  }
  // Something else is to be printed, or nothing more is here.
  template <typename Print>
  void flush(Print print) {
    if (const auto last = std::exchange(waiting_, std::nullopt)) print(*last);
  }

 private:
  static bool is_only_loss(const pb::LogChunk& chunk) {
    return chunk.dropped_bytes() > 0 && chunk.data().empty();
  }
  bool goes_on(const pb::LogChunk& chunk) const {
    return chunk.dropped_bytes() > 0 && chunk.replica() == waiting_->replica() &&
           chunk.attempt() == waiting_->attempt();
  }

  std::optional<pb::LogChunk> waiting_;  // says nothing but what was lost
};

}  // namespace dtrain::cli
