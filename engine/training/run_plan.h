// RunPlan: all that follows from the spec and the data before anything starts: what is trained on what,
// in how many steps. Whatever can be wrong with them is an error here.
#pragma once

#include <filesystem>
#include <optional>

#include "engine/comm/place.h"
#include "engine/data/dataset.h"
#include "engine/data/sampler.h"
#include "engine/layout.h"
#include "engine/models/model.h"
#include "engine/schedule.h"
#include "engine/server/tunnels.h"
#include "schema/engine_spec.h"

namespace dtrain::engine {

struct RunPlan {
  EngineSpec spec;
  Place place;
  std::filesystem::path output_dir;
  std::filesystem::path start;  // of `checkpoint: {from}`; empty: none
  Dataset train;
  std::optional<Dataset> test;
  SampleShape shape;
  Layout layout;
  int gpus = 0;               // of this process; 0: it computes on CPUs
  int threads = 1;            // participants of this process: threads, each with a GPU if there are any
  int crew = 1;               // threads that compute what the only participant computes: crew.h
  int64_t batch = 0;          // of all workers
  int64_t batch_at_once = 0;  // of it what participants share: the largest part where servers deal out parts
  int64_t rows_per_sample = 1;
  int64_t steps_per_epoch = 0;
  int64_t steps = 0;
  int64_t checkpoint_every = 0;  // steps
  Tunnels tunnels = {};          // for data-path: grpc

  Precision precision() const {
    if (spec.precision != Precision::Auto) return spec.precision;
    return gpus > 0 ? Precision::Bf16 : Precision::Fp32;
  }
  // Whether batches are dealt out in parts, to whoever comes next: steps overlap then.
  bool deals_parts() const {
    return spec.strategy.kind == Strategy::ParameterServer && spec.strategy.mode != ServerMode::Sync;
  }
  // Pushes that others may be ahead of the master, so that no two ends of epochs come between two of its own (unless an
  // epoch, or the last one after it, has hardly more pushes than there are workers); 0: any number.
  int64_t most_ahead() const;
  Range last_epoch() const;  // its parts, of all that are dealt from the first step on
  std::string instructions() const;  // that the steps are computed with: "cuda", or of a CPU the kernels' set
  SamplerOptions sampler() const { return {train.size(), batch, spec.seed, spec.epoch_samples}; }
  LearningRate learning_rate() const;
};

// Relative paths are of the working directory, which is the project. `gpus`: that this process may use.
Result<RunPlan> make_plan(EngineSpec spec, Place place, std::filesystem::path output_dir, int gpus = 0);

}  // namespace dtrain::engine
