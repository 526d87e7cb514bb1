#include "engine/schedule.h"

#include <doctest/doctest.h>

namespace dtrain::engine {
namespace {

const RunLength kLength{.steps_per_epoch = 10, .total_steps = 110, .global_batch = 256};

TEST_CASE("constant, and grown with the global batch") {
  CHECK(LearningRate(0.1, {}, kLength).at(50) == 0.1);
  CHECK(LearningRate(0.1, {.scale_with_batch = 64}, kLength).at(0) == doctest::Approx(0.4));
}

TEST_CASE("warm-up rises from the first step and has the full rate in its last") {
  const LearningRate by_epochs(1, {.warm_up_epochs = 1}, kLength);
  CHECK(by_epochs.at(0) == doctest::Approx(0.1));
  CHECK(by_epochs.at(4) == doctest::Approx(0.5));
  CHECK(by_epochs.at(9) == 1);
  CHECK(by_epochs.at(10) == 1);
  CHECK(LearningRate(1, {.warm_up_epochs = 1, .warm_up_steps = 4}, kLength).at(3) == 1);
}

TEST_CASE("step multiplies after each so many epochs, parts of epochs too") {
  const LearningRate rate(1, {.kind = Schedule::Step, .every_epochs = 1.5, .factor = 0.5}, kLength);
  CHECK(rate.at(14) == 1);
  CHECK(rate.at(15) == 0.5);
  CHECK(rate.at(30) == 0.25);
  // 0.3 / 0.1 is less than 3.
  const LearningRate tenths(1, {.kind = Schedule::Step, .every_epochs = 0.1, .factor = 0.5},
                            {.steps_per_epoch = 100, .total_steps = 1000, .global_batch = 1});
  CHECK(tenths.at(29) == 0.25);
  CHECK(tenths.at(30) == 0.125);
  const LearningRate by_steps(1, {.kind = Schedule::Step, .every_steps = 7, .factor = 0.5}, kLength);
  CHECK(by_steps.at(6) == 1);
  CHECK(by_steps.at(7) == 0.5);
  CHECK(by_steps.at(14) == 0.25);
}

TEST_CASE("step counts from the end of the warm-up, as the others do") {
  const LearningRate epochs(1, {.kind = Schedule::Step, .warm_up_epochs = 5, .factor = 0.1}, kLength);
  CHECK(epochs.at(49) == 1);
  CHECK(epochs.at(50) == 1);
  CHECK(epochs.at(59) == 1);
  CHECK(epochs.at(60) == 0.1);
  const LearningRate steps(1, {.kind = Schedule::Step, .warm_up_steps = 6, .every_steps = 2, .factor = 0.5}, kLength);
  CHECK(steps.at(7) == 1);
  CHECK(steps.at(8) == 0.5);
}

TEST_CASE("cosine and linear fall to their final share at the end, and stay there") {
  const ScheduleSpec cosine{.kind = Schedule::Cosine, .warm_up_steps = 10, .final_fraction = 0.1};
  const LearningRate rate(2, cosine, kLength);
  CHECK(rate.at(10) == 2);
  CHECK(rate.at(60) == doctest::Approx(1.1));
  CHECK(rate.at(110) == doctest::Approx(0.2));
  CHECK(rate.at(500) == doctest::Approx(0.2));
  const LearningRate linear(2, {.kind = Schedule::Linear}, kLength);
  CHECK(linear.at(0) == 2);
  CHECK(linear.at(55) == doctest::Approx(1));
  CHECK(linear.at(110) == 0);
}

}  // namespace
}  // namespace dtrain::engine
