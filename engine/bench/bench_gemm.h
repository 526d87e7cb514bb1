// How fast matrix products are, beside what the multiply-add units of one core can do, and oneDNN.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/bench/onednn_peer.h"

namespace dtrain::engine {

// In operations a second: C = A B, A B' and A' B.
struct ProductRates {
  double plain = 0, right_transposed = 0, left_transposed = 0;
};

struct GemmRate {
  int64_t m = 0, n = 0, k = 0;
  ProductRates own;   // A' B over eight leaves, whose products are summed by the tree
  ProductRates peer;  // A' B at once; zeros without a peer
};

struct GemmRates {
  double peak = 0;  // multiply-adds that depend on nothing, two operations each
  std::vector<GemmRate> shapes;
};

// The shapes of an MLP's and of GPTs' layers. Medians of interleaved rounds, one thread.
GemmRates bench_gemm(const OneDnnPeer* peer);

}  // namespace dtrain::engine
