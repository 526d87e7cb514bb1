#include "engine/cuda/rank.h"

#include <cmath>

#include "engine/norm.h"

namespace dtrain::engine::cuda {

Result<std::unique_ptr<Rank>> Rank::open(const RunPlan& plan, int ordinal) {
  TRY(auto context,
      Context::open(ordinal, plan.spec.precision == Precision::Tf32 ? Fp32::Tf32 : Fp32::Full));
  try {
    return std::unique_ptr<Rank>(new Rank(plan, std::move(context)));
  } catch (const std::bad_alloc&) {
    return Error{Code::ResourceExhausted,
                 fmt::format("the GPU has not enough memory for a model of {} parameters", plan.layout.size()),
                 "a smaller model, or strategy: pipeline or tensor over several GPUs"};
  }
}

Rank::Rank(const RunPlan& plan, std::unique_ptr<Context> context)
    : plan_(plan),
      optimizer_(plan.spec.optimizer, plan.layout),
      context_(std::move(context)),
      params_(plan.layout.size()),
      gradients_(plan.layout.size()),
      squares_(blocks_of(plan.layout.size())),
      scale_(1),
      told_(1),
      told_scale_(1) {
  for (int i = 0; i < optimizer_.states(); ++i) states_.emplace_back(plan.layout.size());
  if (plan.precision() == Precision::Bf16) copy_ = DeviceMemory<Bfloat16>(plan.layout.size());
}

template <>
const float* Rank::weights<float>() {
  return params_.data();
}
template <>
const Bfloat16* Rank::weights<Bfloat16>() {
  return copy_.data();
}

void Rank::refresh() {
  if (copy_.size() > 0) convert(stream(), plan_.layout.size(), params_.data(), copy_.data());
}

void Rank::update(const Update& update) {
  const int64_t blocks = plan_.spec.clip_norm == 0 ? 0 : squares_.size();
  if (blocks > 0) block_squares(stream(), plan_.layout.size(), gradients_.data(), squares_.data());
  step_scale(stream(), context_->totals(), blocks, squares_.data(), plan_.spec.clip_norm, scale_.data());
  const OptimizerStep step{.learning_rate = update.learning_rate, .step = update.step + 1};
  optimizer_.for_runs({0, plan_.layout.size()}, [&](Range range, bool decays) {
    const auto at = [&](DeviceMemory<float>& arena) { return arena.data() + range.begin; };
    Bfloat16* copy = copy_.size() > 0 ? copy_.data() + range.begin : nullptr;
    if (plan_.spec.optimizer.kind == Optimizer::Sgd) {
      const SgdConstants c = optimizer_.sgd(step, decays);
      update_sgd(stream(), range.size(), {c.decay, c.momentum, c.minus_rate, plan_.spec.optimizer.nesterov},
                 scale_.data(), at(params_), at(gradients_), states_.empty() ? nullptr : at(states_[0]), copy);
    } else {
      const AdamConstants c = optimizer_.adam(step, decays);
      update_adam(stream(), range.size(),
                  {c.l2, c.shrink, c.take1, c.beta2, c.take2, c.root_correction, c.epsilon, c.minus_step_size},
                  scale_.data(), at(params_), at(gradients_), at(states_[0]), at(states_[1]), copy);
    }
  });
  device().copy_to_host(scale_.data(), 1, told_scale_.data());
}

Result<Outcome> Rank::finish_step(int64_t step, const std::function<Status()>& look) {
  TRY(const Outcome outcome, totals(look));
  if (!std::isfinite(outcome.loss)) {
    return Error{Code::InvalidArgument, fmt::format("the loss is {} in step {}", outcome.loss, step + 1),
                 "a smaller learning rate, or clip: 1.0"};
  }
  if ((*told_scale_).finite == 0) {
    return Error{Code::InvalidArgument, fmt::format("a gradient is not finite in step {}", step + 1),
                 "a smaller learning rate"};
  }
  return outcome;
}

Result<Outcome> Rank::totals(const std::function<Status()>& look) {
  device().copy_to_host(context_->totals(), 1, told_.data());
  TRY(context_->status());
  TRY(device().wait(look));
  const Totals& totals = *told_;
  return Outcome{totals.loss, static_cast<int64_t>(totals.rows), static_cast<int64_t>(totals.correct)};
}

}  // namespace dtrain::engine::cuda
