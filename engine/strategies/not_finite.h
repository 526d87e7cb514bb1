// What a training that has overflown ends with, wherever it is seen. Steps count from 0, and are named from 1.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>

#include "schema/result.h"

namespace dtrain::engine {

inline constexpr const char* kLossHint = "a smaller learning rate, or clip: 1.0";

// The sign that a processor gives to what is no number says nothing.
inline Error wrong_loss(double loss, int64_t step) {
  return {Code::InvalidArgument, fmt::format("the loss is {} in step {}", std::abs(loss), step + 1), kLossHint};
}
inline Status check_loss(double loss, int64_t step) {
  if (std::isfinite(loss)) return ok();
  return wrong_loss(loss, step);
}
// Of the test data, after so many steps.
inline Status check_test_loss(double loss, int64_t steps) {
  if (std::isfinite(loss)) return ok();
  return Error{Code::InvalidArgument,
               fmt::format("the loss of the test data is {} after step {}", std::abs(loss), steps), kLossHint};
}

inline Error wrong_gradient(int64_t step) {
  return {Code::InvalidArgument, fmt::format("a gradient is not finite in step {}", step + 1), "a smaller learning rate"};
}

}  // namespace dtrain::engine
