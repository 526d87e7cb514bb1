// JobPlan: what follows from the spec and from what is known of the data: what is trained, in how many steps. The same
// in every process of a training, whether it reads data or not.
#pragma once

#include "engine/comm/place.h"
#include "engine/data/data_facts.h"
#include "engine/data/sampler.h"
#include "engine/layout.h"
#include "engine/schedule.h"
#include "schema/engine_spec.h"

namespace dtrain::engine {

struct JobPlan {
  EngineSpec spec;
  Place place;
  DataFacts data;
  Layout layout = {};
  int64_t batch = 0;  // of all workers
  int64_t rows_per_sample = 1;
  int64_t steps_per_epoch = 0;
  int64_t steps = 0;
  int64_t checkpoint_every = 0;  // steps

  // Whether batches are dealt out in parts, to whoever comes next: steps overlap then.
  bool deals_parts() const {
    return spec.strategy.kind == Strategy::ParameterServer && spec.strategy.mode != ServerMode::Sync;
  }
  // Pushes that others may be ahead of the master, so that no two ends of epochs come between two of its own (unless an
  // epoch, or the last one after it, has hardly more pushes than there are workers); 0: any number.
  int64_t most_ahead() const;
  Range last_epoch() const;  // its parts, of all that are dealt from the first step on
  SamplerOptions sampler() const { return {data.samples, batch, spec.seed, spec.epoch_samples}; }
  LearningRate learning_rate() const;
};

// InvalidArgument where they don't fit each other.
Result<JobPlan> make_job_plan(EngineSpec spec, Place place, const DataFacts& data);

}  // namespace dtrain::engine
