#include "engine/norm.h"

#include <algorithm>
#include <cmath>

#include "engine/vector_widths.h"

namespace dtrain::engine {
namespace {

// Sixteen sums side by side, whatever the vectors are; a square of floats is exact in a double.
FOR_EACH_VECTOR_WIDTH double squares(const float* values, int64_t count) {
  constexpr int64_t kLanes = 16;
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (; i < count; ++i) lanes[i % kLanes] += static_cast<double>(values[i]) * values[i];
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

}  // namespace

void block_squares(Range range, const float* values, double* sums) {
  for (int64_t begin = 0; begin < range.size(); begin += kBlock) {
    *sums++ = squares(values + begin, std::min(kBlock, range.size() - begin));
  }
}

double sum_of(std::span<const double> block_sums) {
  double sum = 0;
  for (const double each : block_sums) sum += each;
  return sum;
}

double clipped_scale(double squares, double scale, double clip_norm) {
  if (clip_norm == 0) return scale;
  const double norm = std::sqrt(squares) * scale;
  return scale * std::min(1.0, clip_norm / (norm + 1e-6));  // 1e-6: as PyTorch
}

}  // namespace dtrain::engine
