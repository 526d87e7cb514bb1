// How long something took, counted as OpenMetrics has it: how often no longer than each bound.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace dtrain::daemon {

class Histogram {
 public:
  // Seconds. A last count without a bound follows.
  static constexpr std::array<double, 12> kBounds{0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30};
  using Counts = std::array<uint64_t, kBounds.size() + 1>;

  void add(std::chrono::duration<double> took) {
    size_t at = 0;
    while (at < kBounds.size() && took.count() > kBounds[at]) ++at;
    ++counts_[at];
    sum_seconds_ += took.count();
  }

  const Counts& counts() const { return counts_; }   // of each bound those that are above the one before
  double sum_seconds() const { return sum_seconds_; }

 private:
  Counts counts_{};
  double sum_seconds_ = 0;
};

}  // namespace dtrain::daemon
