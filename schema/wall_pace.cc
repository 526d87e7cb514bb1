#include "schema/wall_pace.h"

#include <cstdlib>
#include <utility>

namespace dtrain {

namespace {

constexpr int64_t kStepMs = 10 * 60'000;   // what is set by less makes nothing old
constexpr int64_t kDoubtMs = 24 * 3'600'000;

}  // namespace

bool WallPace::keeps(int64_t unix_ms, int64_t boottime_ms) {
  const int64_t ahead_ms = unix_ms - boottime_ms;
  if (has_looked_ && std::abs(ahead_ms - ahead_ms_) > kStepMs) doubted_until_ms_ = boottime_ms + kDoubtMs;
  ahead_ms_ = ahead_ms;
  return std::exchange(has_looked_, true) && boottime_ms >= doubted_until_ms_;
}

}  // namespace dtrain
