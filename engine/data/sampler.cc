#include "engine/data/sampler.h"

#include <algorithm>
#include <limits>

#include "engine/data/shuffle.h"
#include "schema/result.h"

namespace dtrain::engine {

Batch Batch::part(Range range) const {
  INVARIANT(range.begin >= 0 && range.end <= size(), "a part of it");
  return {samples_, seed_, {places_.begin + range.begin, places_.begin + range.end}};
}

std::vector<uint32_t> Batch::samples() const {
  std::vector<uint32_t> ids;
  ids.reserve(static_cast<size_t>(size()));
  for (int64_t place = places_.begin; place < places_.end;) {
    const int64_t number = place / samples_, first = number * samples_;
    const Shuffle shuffle(samples_, seed_, number);
    const int64_t end = std::min(places_.end, first + samples_);
    for (; place < end; ++place) ids.push_back(shuffle.sample_at(place - first));
  }
  return ids;
}

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

Batch Sampler::batch(int64_t epoch, int64_t step) const {
  INVARIANT(epoch >= 0 && step >= 0 && step < steps_per_epoch(), "the epoch has that step");
  const int64_t begin = epoch * options_.epoch_samples + step * options_.batch;
  return {options_.samples, options_.seed, {begin, begin + batch_size(step)}};
}

}  // namespace dtrain::engine
