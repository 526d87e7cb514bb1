// The update of a participant that is alone: a gradient becomes a new parameter as soon as it is computed, while it is in
// the cache. There is no arena of gradients then.
// Owner: an Updater. Thread: begin() by the participant, the rest by its crew.
// Promises: the bits that an update of all gradients at the end of the step gives.
#pragma once

#include <span>
#include <vector>

#include "engine/gradient_taker.h"
#include "engine/optimizer.h"

namespace dtrain::engine {

class ImmediateUpdate : public GradientTaker<float> {
 public:
  // All outlive it. `gradients`: where the arena would begin; nothing of it is touched.
  ImmediateUpdate(const OptimizerKernel& optimizer, const float* gradients, std::span<float> params,
                  std::vector<std::span<float>> states);

  // Before the first gradient of a step.
  void begin(const OptimizerStep& step) { constants_ = optimizer_.constants(step); }

  void take(const float* place, int64_t stride, int64_t rows, int64_t width, const float* values, int64_t ld) override;
  const float* wanted(const float* place) const override { return params_.data() + (place - gradients_); }

 private:
  const OptimizerKernel& optimizer_;
  const float* const gradients_;
  const std::span<float> params_;
  const std::vector<std::span<float>> states_;
  OptimizerKernel::Constants constants_;
};

}  // namespace dtrain::engine
