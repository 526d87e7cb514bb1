#include "engine/training/job_plan.h"

#include <algorithm>
#include <cmath>

#include "engine/models/model.h"

namespace dtrain::engine {

namespace {

// How many workers, or rows of them, have the whole model.
int64_t copies_of(const EngineSpec& spec, const Place& place) {
  switch (spec.strategy.kind) {
    case Strategy::Pipeline:
    case Strategy::Tensor:
      return 1;
    case Strategy::Mesh:
      return spec.strategy.mesh_data;
    case Strategy::Single:
    case Strategy::Mirrored:
    case Strategy::MultiWorkerMirrored:
    case Strategy::CentralStorage:
    case Strategy::ParameterServer:
      break;
  }
  return static_cast<int64_t>(place.workers.size());
}

}  // namespace

// Each of the others may have one in its hands that it is not let begin.
int64_t JobPlan::most_ahead() const {
  if (!deals_parts()) return 0;
  const auto workers = static_cast<int64_t>(place.workers.size());
  return std::max<int64_t>(1, steps_per_epoch * workers / spec.strategy.apply_every - workers + 1);
}

Range JobPlan::last_epoch() const {
  const auto workers = static_cast<int64_t>(place.workers.size());
  return {(steps - 1) / steps_per_epoch * steps_per_epoch * workers, steps * workers};
}

LearningRate JobPlan::learning_rate() const {
  return LearningRate(spec.optimizer.learning_rate, spec.schedule,
                      {.steps_per_epoch = static_cast<double>(steps_per_epoch), .total_steps = steps,
                       .global_batch = batch});
}

Result<JobPlan> make_job_plan(EngineSpec spec, Place place, const DataFacts& data) {
  TRY(check_fit(spec.model, data.shape));
  JobPlan plan{.spec = std::move(spec), .place = std::move(place), .data = data};
  const EngineSpec& s = plan.spec;
  plan.layout = layout_of(s.model, data.shape);
  plan.rows_per_sample = std::max<int64_t>(1, data.shape.context);
  plan.batch = s.weak_scaling ? s.batch * copies_of(s, plan.place) : s.batch;
  const int64_t samples = s.epoch_samples > 0 ? s.epoch_samples : data.samples;
  if (plan.batch > samples) {
    return Error{Code::InvalidArgument,
                 fmt::format("a batch of {} is more than the {} samples of an epoch", plan.batch, samples),
                 "a smaller batch"};
  }
  plan.steps_per_epoch = Sampler(plan.sampler()).steps_per_epoch();
  const auto steps_of = [&](double epochs) {
    return static_cast<int64_t>(std::ceil(epochs * static_cast<double>(plan.steps_per_epoch) - 1e-9));
  };
  plan.steps = s.steps > 0 ? s.steps : steps_of(s.epochs);
  plan.checkpoint_every = s.checkpoint_steps > 0 ? s.checkpoint_steps : steps_of(s.checkpoint_epochs);
  return plan;
}

}  // namespace dtrain::engine
