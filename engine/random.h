// Random numbers by Philox4x32-10 (Salmon et al., SC 2011). A number depends on (seed, stream, row) and its place
// in the row alone, so that it is the same whoever draws it, in whatever order, on any host: no
// function of libm is called, whose last bit differs between versions.
#pragma once

#include <array>
#include <cstdint>

namespace dtrain::engine {

// What a stream of numbers is for. Parameters take the streams from kParameterStream on.
inline constexpr uint32_t kShuffleStream = 1;
inline constexpr uint32_t kDigitStream = 2;
inline constexpr uint32_t kParameterStream = uint32_t{1} << 16;

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// The normal distribution's quantile for 0 < p < 1, to about 16 digits (Wichura 1988, AS 241).
double normal_quantile(double p);

// A row of numbers, one after the other, for who draws many. Owner: one thread.
class RandomRow {
 public:
  RandomRow(uint64_t seed, uint32_t stream, uint64_t row)
      : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
        counter_{0, stream, static_cast<uint32_t>(row), static_cast<uint32_t>(row >> 32)} {}

  // Nothing was drawn yet: goes on as if an even number of numbers of 64 bits had been.
  void pass(int64_t count) { counter_[0] = static_cast<uint32_t>(count / 2); }

  uint32_t word();
  uint64_t word64();
  double uniform();  // in [0, 1)
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  double normal();
  // In [0, bound), each with a chance that is off by less than bound / 2^64.
  uint64_t below(uint64_t bound);

 private:
  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 4> counter_;
  std::array<uint32_t, 4> words_{};
  int left_ = 0;
};

}  // namespace dtrain::engine
