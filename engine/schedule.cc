#include "engine/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace dtrain::engine {

LearningRate::LearningRate(double base, const ScheduleSpec& spec, const RunLength& length)
    : full_(base), spec_(spec), length_(length), warm_up_(spec.warm_up_steps) {
  if (spec.scale_with_batch != 0) {
    full_ *= static_cast<double>(length.global_batch) / spec.scale_with_batch;
  }
  if (warm_up_ == 0) warm_up_ = std::llround(spec.warm_up_epochs * length.steps_per_epoch);
}

double LearningRate::at(int64_t step) const {
  if (step < warm_up_) {
    return full_ * static_cast<double>(step + 1) / static_cast<double>(warm_up_);
  }
  const int64_t since = step - warm_up_;
  const auto left = static_cast<double>(std::max<int64_t>(1, length_.total_steps - warm_up_));
  const double progress = std::min(1.0, static_cast<double>(since) / left);
  switch (spec_.kind) {
    case Schedule::Constant:
      return full_;
    case Schedule::Step: {
      if (spec_.every_steps > 0) return full_ * std::pow(spec_.factor, since / spec_.every_steps);
      const double epochs = static_cast<double>(since) / length_.steps_per_epoch;
      // 0.3 epochs are three times 0.1, though the quotient of the doubles is a little less.
      return full_ * std::pow(spec_.factor, std::floor(epochs / spec_.every_epochs + 1e-9));
    }
    case Schedule::Cosine: {
      const double falling = 0.5 * (1 + std::cos(std::numbers::pi * progress));
      return full_ * (spec_.final_fraction + (1 - spec_.final_fraction) * falling);
    }
    case Schedule::Linear:
      return full_ * (spec_.final_fraction + (1 - spec_.final_fraction) * (1 - progress));
  }
  return full_;
}

}  // namespace dtrain::engine
