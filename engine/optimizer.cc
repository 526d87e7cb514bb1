#include "engine/optimizer.h"

#include <algorithm>
#include <cmath>

#include "engine/vector_widths.h"

// Built with -O3 and without contraction to fused multiply-adds (see CMakeLists.txt): then every
// operation is rounded alone, and neither vector width nor a loop's tail shows in the bits.
namespace dtrain::engine {
namespace {

using ParameterBlock = OptimizerKernel::Block;

// each(i, j) of every element: where it is, and where its gradient. Widths of tiles are known beforehand.
template <class Each>
inline __attribute__((always_inline)) void for_block(const ParameterBlock& of, Each each) {
  const auto rows = [&](int64_t width) __attribute__((always_inline)) {
    for (int64_t row = 0; row < of.rows; ++row) {
      const int64_t at = row * of.stride, from = row * of.gradient_stride;
#pragma GCC ivdep
      for (int64_t i = 0; i < width; ++i) each(at + i, from + i);
    }
  };
  if (of.width == 32) return rows(32);  // with AVX-512
  if (of.width == 16) return rows(16);
  rows(of.width);
}

FOR_EACH_VECTOR_WIDTH
void sgd_plain(ParameterBlock of, SgdConstants c, float* __restrict params, const float* __restrict grads) {
  for_block(of, [=](int64_t i, int64_t j) __attribute__((always_inline)) {
    const float grad = grads[j] * c.scale + params[i] * c.decay;
    params[i] = params[i] + c.minus_rate * grad;
  });
}

// PyTorch sets the buffer to the gradient in the first step: what a buffer of zeros becomes too.
FOR_EACH_VECTOR_WIDTH
void sgd_momentum(ParameterBlock of, SgdConstants c, float* __restrict params, const float* __restrict grads,
                  float* __restrict buffer) {
  for_block(of, [=](int64_t i, int64_t j) __attribute__((always_inline)) {
    const float grad = grads[j] * c.scale + params[i] * c.decay;
    buffer[i] = buffer[i] * c.momentum + grad;
    params[i] = params[i] + c.minus_rate * buffer[i];
  });
}

FOR_EACH_VECTOR_WIDTH
void sgd_nesterov(ParameterBlock of, SgdConstants c, float* __restrict params, const float* __restrict grads,
                  float* __restrict buffer) {
  for_block(of, [=](int64_t i, int64_t j) __attribute__((always_inline)) {
    const float grad = grads[j] * c.scale + params[i] * c.decay;
    buffer[i] = buffer[i] * c.momentum + grad;
    params[i] = params[i] + c.minus_rate * (grad + c.momentum * buffer[i]);
  });
}

FOR_EACH_VECTOR_WIDTH
void update_adam(ParameterBlock of, AdamConstants c, float* __restrict params, const float* __restrict grads,
                 float* __restrict first, float* __restrict second) {
  for_block(of, [=](int64_t i, int64_t j) __attribute__((always_inline)) {
    const float param = params[i] * c.shrink;
    const float grad = grads[j] * c.scale + param * c.l2;
    first[i] = first[i] + c.take1 * (grad - first[i]);
    second[i] = second[i] * c.beta2 + c.take2 * grad * grad;
    const float denominator = std::sqrt(second[i]) / c.root_correction + c.epsilon;
    params[i] = param + c.minus_step_size * first[i] / denominator;
  });
}

}  // namespace

OptimizerKernel::OptimizerKernel(const OptimizerSpec& spec, const Layout& layout) : spec_(spec) {
  runs_.push_back({0, false});
  for (const Parameter& parameter : layout.parameters()) {
    const bool decays = parameter.decays && spec.weight_decay != 0;
    if (decays != runs_.back().decays) runs_.push_back({parameter.offset, decays});
  }
}

int OptimizerKernel::states() const {
  if (spec_.kind != Optimizer::Sgd) return 2;
  return spec_.momentum != 0 ? 1 : 0;
}

SgdConstants OptimizerKernel::sgd(const OptimizerStep& step, bool decays) const {
  return {.scale = static_cast<float>(step.gradient_scale),
          .decay = decays ? static_cast<float>(spec_.weight_decay) : 0,
          .momentum = static_cast<float>(spec_.momentum),
          .minus_rate = static_cast<float>(-step.learning_rate)};
}

AdamConstants OptimizerKernel::adam(const OptimizerStep& step, bool decays) const {
  const double decay = decays ? spec_.weight_decay : 0;
  const bool decoupled = spec_.kind == Optimizer::AdamW;
  const auto steps = static_cast<double>(step.step);
  const double correction1 = 1 - std::pow(spec_.beta1, steps);
  const double correction2 = 1 - std::pow(spec_.beta2, steps);
  return {.scale = static_cast<float>(step.gradient_scale),
          .l2 = decoupled ? 0 : static_cast<float>(decay),
          .shrink = decoupled ? static_cast<float>(1 - step.learning_rate * decay) : 1,
          .take1 = static_cast<float>(1 - spec_.beta1),
          .beta2 = static_cast<float>(spec_.beta2),
          .take2 = static_cast<float>(1 - spec_.beta2),
          .root_correction = static_cast<float>(std::sqrt(correction2)),
          .epsilon = static_cast<float>(spec_.epsilon),
          .minus_step_size = static_cast<float>(-(step.learning_rate / correction1))};
}

bool OptimizerKernel::decays(int64_t at) const {
  return (std::upper_bound(runs_.begin(), runs_.end(), at, [](int64_t i, const Run& r) { return i < r.begin; }) - 1)->decays;
}

void OptimizerKernel::for_runs(Range range, const std::function<void(Range, bool)>& visit) const {
  auto run = std::upper_bound(runs_.begin(), runs_.end(), range.begin,
                              [](int64_t at, const Run& r) { return at < r.begin; }) -
             1;
  for (int64_t begin = range.begin; begin < range.end; ++run) {
    const int64_t end = run + 1 == runs_.end() ? range.end : std::min(range.end, run[1].begin);
    visit({begin, end}, run->decays);
    begin = end;
  }
}

OptimizerKernel::Constants OptimizerKernel::constants(const OptimizerStep& step) const {
  Constants of;
  for (const bool decays : {false, true}) set(of, step, decays);
  return of;
}

void OptimizerKernel::set(Constants& of, const OptimizerStep& step, bool decays) const {
  if (spec_.kind == Optimizer::Sgd) {
    of.sgd[decays] = sgd(step, decays);
  } else {
    of.adam[decays] = adam(step, decays);
  }
}

void OptimizerKernel::update(Range range, const OptimizerStep& step, float* params,
                             const float* grads, float* state0, float* state1) const {
  for_runs(range, [&](Range run, bool decays) {
    Constants of;
    set(of, step, decays);
    const int64_t at = run.begin - range.begin;
    const auto from = [at](float* state) { return state == nullptr ? nullptr : state + at; };
    update({.width = run.size()}, decays, of, params + at, grads + at, from(state0), from(state1));
  });
}

void OptimizerKernel::update(const ParameterBlock& block, bool decays, const Constants& of, float* params, const float* grads,
                             float* state0, float* state1) const {
  if (spec_.kind != Optimizer::Sgd) {
    update_adam(block, of.adam[decays], params, grads, state0, state1);
  } else if (spec_.momentum == 0) {
    sgd_plain(block, of.sgd[decays], params, grads);
  } else if (spec_.nesterov) {
    sgd_nesterov(block, of.sgd[decays], params, grads, state0);
  } else {
    sgd_momentum(block, of.sgd[decays], params, grads, state0);
  }
}

}  // namespace dtrain::engine
