#include "engine/training/batches.h"

#include <span>
#include <utility>

namespace dtrain::engine {

const std::vector<uint32_t>& Batches::of(int64_t step) {
  batch_ = step == next_step_ ? std::move(next_) : sampled(step);
  if (step + 1 < plan_.steps) {
    next_step_ = step + 1;
    next_ = sampled(next_step_);
    const Range mine = share_.reads(static_cast<int64_t>(next_.size()));
    plan_.train.ask_for(std::span(next_).subspan(static_cast<size_t>(mine.begin), static_cast<size_t>(mine.size())));
  }
  return batch_;
}

std::vector<uint32_t> Batches::sampled(int64_t step) {
  return sampler_.batch(step / plan_.steps_per_epoch, step % plan_.steps_per_epoch);
}

}  // namespace dtrain::engine
