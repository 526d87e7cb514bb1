// Which samples a step takes. All samples are shuffled again and again, each time by a permutation
// that depends on (seed, its number) alone, and an epoch is a part of that endless row: so every
// sample comes exactly once an epoch whoever computes it, and (epoch, step) is all that a resumed
// run needs. A virtual epoch has another size than the data set, and starts where the one before
// ended.
//
// Owner: one thread. Keeps the permutation in use: 4 bytes a sample.
#pragma once

#include <cstdint>
#include <vector>

namespace dtrain::engine {

struct SamplerOptions {
  int64_t samples = 0;  // of the data set; fewer than 2^32
  int64_t batch = 1;    // of all participants
  uint64_t seed = 0;
  int64_t epoch_samples = 0;  // 0: all of the data set, once
};

class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);

  // The last batch of an epoch is what is left.
  int64_t steps_per_epoch() const;
  int64_t batch_size(int64_t step) const;
  // The samples of a step of an epoch, both from 0, in the order that leaves cut them.
  std::vector<uint32_t> batch(int64_t epoch, int64_t step);

  // The n-th shuffle: tests and other readers of the order.
  static std::vector<uint32_t> permutation(int64_t samples, uint64_t seed, int64_t n);

 private:
  SamplerOptions options_;
  std::vector<uint32_t> permutation_;
  int64_t shuffle_ = -1;  // which one permutation_ is
};

}  // namespace dtrain::engine
