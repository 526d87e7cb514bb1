// How a member of a search does, by the metric that the search goes by: the best value it ever had, over all attempts, and
// what that was each time that its set looked at it. A plain value on the loop thread.
#pragma once

#include <cmath>
#include <utility>
#include <vector>

#include "schema/spec.h"

namespace dtrain::daemon {

class Climb {
 public:
  Climb() = default;
  Climb(double best, std::vector<double> rungs) : best_(best), rungs_(std::move(rungs)) {}

  // What is not finite is never the best.
  void take(double value, bool highest_is_best);
  // It has come to so many values, or by what is counted instead. Where members are looked at on the way, the best until now
  // is what it has there.
  void come_to(const StopEarly& stop, double reached);
  // Somebody else says from now on how the member does. Where it was looked at, that has been.
  void begin_anew() { best_ = std::nan(""); }

  double best() const { return best_; }   // NaN: there was none
  const std::vector<double>& rungs() const { return rungs_; }   // only ever grows

 private:
  double best_ = std::nan("");
  std::vector<double> rungs_;
};

}  // namespace dtrain::daemon
