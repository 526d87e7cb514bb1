#include "engine/strategies/immediate_update.h"

#include <utility>

namespace dtrain::engine {

ImmediateUpdate::ImmediateUpdate(const OptimizerKernel& optimizer, const float* gradients, std::span<float> params,
                                 std::vector<std::span<float>> states)
    : optimizer_(optimizer), gradients_(gradients), params_(params), states_(std::move(states)) {}

void ImmediateUpdate::take(const float* place, int64_t stride, int64_t rows, int64_t width, const float* values,
                           int64_t ld) {
  const int64_t at = place - gradients_;
  const auto state = [&](size_t i) { return i < states_.size() ? states_[i].data() + at : nullptr; };
  optimizer_.update({.width = width, .rows = rows, .stride = stride, .gradient_stride = ld}, optimizer_.decays(at),
                    constants_, params_.data() + at, values, state(0), state(1));
}

}  // namespace dtrain::engine
