// Which products are by tiles: those for which splitting B into its parts takes little beside what it saves.
// The number of rows of C must not matter, for the bits of a row don't depend on how many others there are; of a
// sum over leaves each leaf is a product by itself.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/kernels/amx_gemm.h"
#include "engine/kernels/crew.h"
#include "engine/kernels/isa.h"
#include "engine/kernels/kernels.h"

namespace dtrain::engine::DTRAIN_ISA {

// kMany: rows of C are many beside those of B, whatever the batch.
template <bool kMany>
bool is_by_tiles(int64_t n_count, int64_t k_count) {
  if (kMany) return k_count >= kChunk && n_count * k_count >= 16384;
  return std::min(n_count, k_count) >= 512;
}

template <bool kMany>
void gemm_then(int64_t m_count, int64_t n_count, int64_t k_count, GemmA<float> a, GemmB<float> b, float* c,
                      int64_t ldc, const Then<float>& then, Crew* crew) {
  const auto product = is_by_tiles<kMany>(n_count, k_count) ? &multiply_then : kAvx512Kernels.gemm_then;
  product(m_count, n_count, k_count, a, b, c, ldc, then, crew);
}

template <bool kMany>
void gemm(int64_t m_count, int64_t n_count, int64_t k_count, GemmA<float> a, GemmB<float> b, float* c,
                 int64_t ldc, bool add, Crew* crew) {
  gemm_then<kMany>(m_count, n_count, k_count, a, b, c, ldc, {.plus = add ? c : nullptr}, crew);
}

// Leaf by leaf, of both kinds.
template <bool kMany>
void gemm_mixed_tree(int64_t m_count, int64_t n_count, Leaves leaves, GemmA<float> a, GemmB<float> b, float* c,
                            int64_t ldc, bool add, Crew* crew) {
  const int64_t size = m_count * n_count;
  std::vector<float> waiting(static_cast<size_t>(kTreeLevels * size));
  float* sums = waiting.data();
  int64_t k = 0;
  for (int leaf = 0; leaf < leaves.count; ++leaf, sums += size) {
    gemm<kMany>(m_count, n_count, leaves.ends[leaf] - k, {a.data + k * a.column_stride, a.row_stride, a.column_stride},
         {b.data + k * b.row_stride, b.row_stride, b.column_stride}, sums, n_count, false, crew);
    for (int rest = leaf; rest & 1; rest >>= 1) {
      sums -= size;
      for (int64_t i = 0; i < size; ++i) sums[i] = sums[size + i] + sums[i];
    }
    k = leaves.ends[leaf];
  }
  for (int64_t m = 0; m < m_count; ++m) {
    for (int64_t n = 0; n < n_count; ++n) {
      float& to = c[m * ldc + n];
      const float sum = waiting[static_cast<size_t>(m * n_count + n)];
      to = add ? sum + to : sum;
    }
  }
}

template <bool kMany>
void gemm_tree(int64_t m_count, int64_t n_count, Leaves leaves, GemmA<float> a, GemmB<float> b, float* c,
                      int64_t ldc, bool add, Crew* crew) {
  int by_tiles = 0, empty = 0;
  for (int leaf = 0; leaf < leaves.count; ++leaf) {
    const int64_t size = leaves.ends[leaf] - (leaf == 0 ? 0 : leaves.ends[leaf - 1]);
    if (size == 0) ++empty;
    if (is_by_tiles<kMany>(n_count, size)) ++by_tiles;
  }
  const auto product = by_tiles == 0                        ? kAvx512Kernels.gemm_tree
                       : by_tiles + empty == leaves.count ? &multiply_tree
                                                            : &gemm_mixed_tree<kMany>;
  product(m_count, n_count, leaves, a, b, c, ldc, add, crew);
}

}  // namespace dtrain::engine::DTRAIN_ISA
