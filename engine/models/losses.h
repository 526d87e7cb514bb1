// The sum of losses over a batch, by the tree over its leaves.
#pragma once

#include <array>

#include "engine/kernels/kernels.h"

namespace dtrain::engine {

// Of losses[0, rows), leaf l being rows_per_sample times its samples.
inline double tree_total(Leaves leaves, int64_t rows_per_sample, const double* losses) {
  std::array<double, kTreeLevels> waiting{};
  size_t depth = 0;
  int64_t row = 0;
  for (int leaf = 0; leaf < leaves.count; ++leaf) {
    double sum = 0;
    for (; row < leaves.ends[leaf] * rows_per_sample; ++row) sum += losses[row];
    for (int rest = leaf; rest & 1; rest >>= 1) sum += waiting[--depth];
    waiting[depth++] = sum;
  }
  return waiting[0];
}

}  // namespace dtrain::engine
