// How fast a gang learns: counts at the ends of steps, between two lines of progress.
#pragma once

#include <chrono>
#include <optional>

namespace dtrain::engine {

class Rate {
 public:
  using Clock = std::chrono::steady_clock;

  // `samples`: learned from by then, since whenever.
  void count(Clock::time_point at, double samples) {
    if (!first_) first_ = {at, samples};
    last_ = {at, samples};
  }
  // Of the time since the first count.
  void leave_out(Clock::duration time) {
    if (first_) first_->at += time;
  }
  // From the first count to the last; nothing with fewer than two, or no time between them.
  std::optional<double> per_second() const {
    if (!first_ || last_.at == first_->at) return std::nullopt;
    return (last_.samples - first_->samples) / std::chrono::duration<double>(last_.at - first_->at).count();
  }

 private:
  struct Count {
    Clock::time_point at;
    double samples = 0;
  };
  std::optional<Count> first_;
  Count last_;
};

}  // namespace dtrain::engine
