#include "engine/training/batches.h"

namespace dtrain::engine {

Batch Batches::of(int64_t step) {
  const int64_t next_step = step + 1;
  if (plan_.train.kind() == Dataset::Kind::Tokens && next_step < plan_.steps && next_step != asked_step_) {
    asked_step_ = next_step;
    const Batch next = dealt_of(next_step);
    plan_.train.ask_for(next.part(share_.reads(next.size())).samples());
  }
  return dealt_of(step);
}

Batch Batches::dealt_of(int64_t step) const {
  const Batch batch = sampler_.batch(step / plan_.steps_per_epoch, step % plan_.steps_per_epoch);
  return batch.part(dealt_(batch.size()));
}

}  // namespace dtrain::engine
