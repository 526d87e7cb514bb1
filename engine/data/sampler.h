// Which samples a step takes. All samples are shuffled again and again, each time in an order that depends on
// (seed, its number) alone, and an epoch is a part of that endless row: so every sample comes exactly once an epoch
// whoever computes it, and (epoch, step) is all that a resumed run needs. A virtual epoch has another size than the
// data set, and starts where the one before ended.
//
// Values: any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/layout.h"

namespace dtrain::engine {

struct SamplerOptions {
  int64_t samples = 0;  // of the data set; fewer than 2^32
  int64_t batch = 1;    // of all participants
  uint64_t seed = 0;
  int64_t epoch_samples = 0;  // 0: all of the data set, once
};

// Samples in a row, known by their place in it.
class Batch {
 public:
  Batch(int64_t samples, uint64_t seed, Range places) : samples_(samples), seed_(seed), places_(places) {}

  int64_t size() const { return places_.size(); }
  // Of it, from 0.
  Batch part(Range range) const;
  // Computed here: in the order that leaves cut them.
  std::vector<uint32_t> samples() const;

 private:
  int64_t samples_;  // of the data set
  uint64_t seed_;
  Range places_;
};

class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);

  // The last batch of an epoch is what is left.
  int64_t steps_per_epoch() const;
  int64_t batch_size(int64_t step) const;
  // Of a step of an epoch, both from 0.
  Batch batch(int64_t epoch, int64_t step) const;

 private:
  SamplerOptions options_;
};

}  // namespace dtrain::engine
