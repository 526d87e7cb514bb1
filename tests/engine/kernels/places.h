// Who takes gradients and keeps them: each block where it belongs, and how often each element came.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/gradient_taker.h"

namespace dtrain::engine {

struct Places : GradientTaker<float> {
  Places(const float* from, size_t size) : arena(from), values(size), times(size) {}
  void take(const float* place, int64_t stride, int64_t rows, int64_t width, const float* block, int64_t ld) override {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < width; ++i) {
        const auto at = static_cast<size_t>(place - arena + row * stride + i);
        values[at] = block[row * ld + i];
        ++times[at];
      }
    }
  }
  const float* wanted(const float* place) const override { return values.data() + (place - arena); }
  const float* arena;
  std::vector<float> values;
  std::vector<int> times;
};

}  // namespace dtrain::engine
