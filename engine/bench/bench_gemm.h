// How fast matrix products are, beside what the multiply-add units of one core can do.
#pragma once

#include <cstdint>
#include <vector>

namespace dtrain::engine {

struct GemmRate {
  int64_t m = 0, n = 0, k = 0;
  // In operations a second: C = A B, A B' and A' B over eight leaves.
  double plain = 0, right_transposed = 0, tree = 0;
};

struct GemmRates {
  double peak = 0;  // multiply-adds that depend on nothing, two operations each
  std::vector<GemmRate> shapes;
};

// The shapes of the layers that engine/README.md shows figures of. Medians of interleaved rounds, one thread.
GemmRates bench_gemm();

}  // namespace dtrain::engine
