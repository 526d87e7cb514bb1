// A shuffle of samples that keeps no table: which sample comes at a place is computed, so that whoever needs a part of
// the order has it at once, without the rest. A Feistel network over a grid of about sqrt(samples) x sqrt(samples)
// places, run again where it leads to a place beyond the last sample (Black and Rogaway, CT-RSA 2002, method 3).
#pragma once

#include <array>
#include <cstdint>

namespace dtrain::engine {

class Shuffle {
 public:
  // The number-th shuffle of a seed. Of 1 to 2^32 - 1 samples.
  Shuffle(int64_t samples, uint64_t seed, int64_t number);

  // Each place in [0, samples) has another one.
  uint32_t sample_at(int64_t place) const;

 private:
  uint64_t samples_, rows_, columns_;  // rows_ * columns_ >= samples_
  std::array<uint64_t, 8> keys_;       // of the rounds: with fewer, neighbours of small sets stay near each other
};

}  // namespace dtrain::engine
