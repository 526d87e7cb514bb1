// The global norm of gradients: sums of squares over fixed blocks of the arena, in double, added in
// the order of the blocks. So it has the same bits however ranges are spread over threads and
// hosts.
#pragma once

#include <cstdint>
#include <span>

#include "engine/layout.h"

namespace dtrain::engine {

// Elements of a block: block i is [i * kBlock, (i + 1) * kBlock) of the arena. Ranges that go to
// different owners are cut at blocks only.
inline constexpr int64_t kBlock = 4096;

inline int64_t blocks_of(int64_t elements) {
  return (elements + kBlock - 1) / kBlock;
}

// One sum for each block of `range`, which begins at a block; `values` is its first element. A sum
// is finite if and only if all values of its block are: squares of floats don't overflow a double.
void block_squares(Range range, const float* values, double* sums);

// In order.
double sum_of(std::span<const double> block_sums);

// The factor for a sum of gradients, `scale` being 1 / batch: smaller if their norm exceeds
// `clip_norm` (0: never).
double clipped_scale(double squares, double scale, double clip_norm);

}  // namespace dtrain::engine
