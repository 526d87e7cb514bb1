// Whether ages by the wall clock may be believed, by who deletes what is old. A clock that is set forward, or that is wrong
// when a machine begins, makes all there is old at once; most often somebody or something sets it right before long.
#pragma once

#include <cstdint>

namespace dtrain {

class WallPace {
 public:
  // At each look, some of which come within an hour or so: true once the wall clock has kept pace with the boot clock since
  // the look before, and, where it has not at another, for a day since.
  bool keeps(int64_t unix_ms, int64_t boottime_ms);

 private:
  bool has_looked_ = false;
  int64_t ahead_ms_ = 0;        // of the boot clock, at the last look
  int64_t doubted_until_ms_ = 0;   // by the boot clock
};

}  // namespace dtrain
