#include "engine/data/sampler.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "engine/random.h"
#include "schema/result.h"

namespace dtrain::engine {

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  INVARIANT(options.samples > 0 && options.samples <= std::numeric_limits<uint32_t>::max(),
            "a data set has samples, and their numbers have 32 bits");
  INVARIANT(options.batch > 0 && options.epoch_samples >= 0, "batches have samples");
  if (options_.epoch_samples == 0) options_.epoch_samples = options_.samples;
}

int64_t Sampler::steps_per_epoch() const {
  return (options_.epoch_samples + options_.batch - 1) / options_.batch;
}

int64_t Sampler::batch_size(int64_t step) const {
  return std::min(options_.batch, options_.epoch_samples - step * options_.batch);
}

std::vector<uint32_t> Sampler::batch(int64_t epoch, int64_t step) {
  INVARIANT(epoch >= 0 && step >= 0 && step < steps_per_epoch(), "the epoch has that step");
  std::vector<uint32_t> ids(static_cast<size_t>(batch_size(step)));
  int64_t position = epoch * options_.epoch_samples + step * options_.batch;
  for (uint32_t& id : ids) {
    if (position / options_.samples != shuffle_) {
      shuffle_ = position / options_.samples;
      permutation_ = permutation(options_.samples, options_.seed, shuffle_);
    }
    id = permutation_[static_cast<size_t>(position % options_.samples)];
    ++position;
  }
  return ids;
}

std::vector<uint32_t> Sampler::permutation(int64_t samples, uint64_t seed, int64_t n) {
  std::vector<uint32_t> order(static_cast<size_t>(samples));
  std::iota(order.begin(), order.end(), 0u);
  RandomRow row(seed, kShuffleStream, static_cast<uint64_t>(n));
  for (size_t left = order.size(); left > 1; --left) {
    std::swap(order[left - 1], order[row.below(left)]);
  }
  return order;
}

}  // namespace dtrain::engine
