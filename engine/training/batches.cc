#include "engine/training/batches.h"

#include <utility>

namespace dtrain::engine {
namespace {

std::span<const uint32_t> part_of(std::span<const uint32_t> samples, Range range) {
  return samples.subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.size()));
}

}  // namespace

std::span<const uint32_t> Batches::of(int64_t step) {
  if (step != step_) {
    batch_ = step == next_step_ ? std::move(next_) : sampled(step);
    next_step_ = -1;
    step_ = step;
  }
  if (step + 1 < plan_.steps && step + 1 != next_step_) {
    next_step_ = step + 1;
    next_ = sampled(next_step_);
    const std::span<const uint32_t> next = dealt_of(next_);
    plan_.train.ask_for(part_of(next, share_.reads(static_cast<int64_t>(next.size()))));
  }
  return dealt_of(batch_);
}

std::vector<uint32_t> Batches::sampled(int64_t step) {
  return sampler_.batch(step / plan_.steps_per_epoch, step % plan_.steps_per_epoch);
}

std::span<const uint32_t> Batches::dealt_of(const std::vector<uint32_t>& batch) const {
  return part_of(batch, dealt_(static_cast<int64_t>(batch.size())));
}

}  // namespace dtrain::engine
