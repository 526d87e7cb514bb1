// The learning rate of each step.
#pragma once

#include <cstdint>

#include "schema/engine_spec.h"

namespace dtrain::engine {

struct RunLength {
  double steps_per_epoch = 1;
  int64_t total_steps = 1;
  int64_t global_batch = 1;
};

// Immutable; a pure function of the step.
class LearningRate {
 public:
  LearningRate(double base, const ScheduleSpec& spec, const RunLength& length);

  // `step` counts from 0. Warm-up rises so that its last step has the full rate, the first a share.
  double at(int64_t step) const;
  int64_t warm_up() const { return warm_up_; }  // steps

 private:
  double full_;  // scaled with the batch
  ScheduleSpec spec_;
  RunLength length_;
  int64_t warm_up_;  // steps
};

}  // namespace dtrain::engine
