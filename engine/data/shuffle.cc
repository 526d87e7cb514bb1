#include "engine/data/shuffle.h"

#include <cmath>

#include "engine/random.h"

namespace dtrain::engine {
namespace {

// In [0, bound), bound < 2^32: all bits of x and the key have a say in it.
uint64_t below(uint64_t bound, uint64_t x, uint64_t key) {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15;  // 2^64 over the golden ratio
  uint64_t mixed = (x ^ key) * kOdd;
  mixed ^= mixed >> 32;
  mixed *= kOdd;
  return ((mixed >> 32) * bound) >> 32;
}

uint64_t moved(uint64_t x, uint64_t by, uint64_t bound) { return x + by < bound ? x + by : x + by - bound; }

}  // namespace

Shuffle::Shuffle(int64_t samples, uint64_t seed, int64_t number)
    : samples_(static_cast<uint64_t>(samples)),
      rows_(static_cast<uint64_t>(std::ceil(std::sqrt(static_cast<double>(samples))))),  // exact, as IEEE 754 has it
      columns_((samples_ + rows_ - 1) / rows_) {
  RandomRow row(seed, kShuffleStream, static_cast<uint64_t>(number));
  for (uint64_t& key : keys_) key = row.word64();
}

uint32_t Shuffle::sample_at(int64_t place) const {
  auto at = static_cast<uint64_t>(place);
  do {
    uint64_t row = at / columns_, column = at % columns_;
    for (size_t round = 0; round < keys_.size(); round += 2) {
      row = moved(row, below(rows_, column, keys_[round]), rows_);
      column = moved(column, below(columns_, row, keys_[round + 1]), columns_);
    }
    at = row * columns_ + column;
  } while (at >= samples_);
  return static_cast<uint32_t>(at);
}

}  // namespace dtrain::engine
