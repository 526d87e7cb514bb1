// What the master says while it trains: one line of key=value an epoch, and one every ten seconds when
// epochs take longer; the same numbers as TensorBoard events.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "engine/models/model.h"
#include "engine/training/rate.h"
#include "engine/training/run_plan.h"

namespace dtrain::engine {

// Of what came since the last line.
struct Interval {
  int64_t steps = 0;
  Outcome outcome;
  Rate rate;
  double saving_seconds = 0;  // in which nobody learned
};

class Progress {
 public:
  using Clock = std::chrono::steady_clock;
  using Scalar = std::function<void(std::string_view tag, int64_t step, double value)>;
  // `step`: what it goes on at. `scalar` takes what is to be drawn.
  Progress(const RunPlan& plan, int64_t step, Scalar scalar, std::function<Clock::time_point()> now = &Clock::now);

  // `step` steps altogether are known, none more than before perhaps, and the outcome of what the gang has learned from
  // since the last call. At the end of an epoch on_epoch() follows.
  void on_step(int64_t step, const Outcome& outcome, bool ends_epoch);
  void on_epoch(int64_t step, const std::optional<Outcome>& test);
  // A checkpoint was written, since the last of these calls.
  void on_saved();

 private:
  void say(int64_t step, const std::optional<Outcome>& test);
  double seconds_left(int64_t step) const;

  const RunPlan& plan_;
  const bool stops_;  // the gang does, while the master tests
  const Scalar scalar_;
  const std::function<Clock::time_point()> now_;
  Interval interval_;
  Clock::time_point interval_began_, last_step_;
  double training_seconds_ = 0;
  int64_t trained_steps_ = 0, samples_ = 0;
  int64_t step_;  // the last
};

}  // namespace dtrain::engine
