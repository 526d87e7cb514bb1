// Which products are by tiles: those for which splitting B into its parts takes little beside what it saves. How
// many rows C has must not matter, for the bits of a row don't depend on how many others there are; nor how long
// one participant's leaves are.
#pragma once

#include <algorithm>

#include "engine/kernels/amx_gemm.h"
#include "engine/kernels/crew.h"
#include "engine/kernels/isa.h"
#include "engine/kernels/kernels.h"

namespace dtrain::engine::DTRAIN_ISA {

// kMany: rows of C are many whatever the batch.
template <bool kMany>
bool is_by_tiles(int64_t n_count, int64_t k_count) {
  return kMany ? n_count >= 128 : std::min(n_count, k_count) >= 512;
}

// A background that is to be left out (with_products()), and can be, is faster left out than by tiles.
template <bool kMany>
void gemm_then(int64_t m_count, int64_t n_count, int64_t k_count, GemmA<float> a, GemmB<float> b, float* c,
               int64_t ldc, const Then<float>& then, Crew* crew) {
  const bool leaves_out = a.common.value != 0 && may_leave_out(n_count, k_count);
  const bool by_tiles = is_by_tiles<kMany>(n_count, k_count) && !leaves_out;
  const auto product = by_tiles ? &multiply_then : kAvx512Kernels.gemm_then;
  product(m_count, n_count, k_count, a, b, c, ldc, then, crew);
}

template <bool kMany>
void gemm(int64_t m_count, int64_t n_count, int64_t k_count, GemmA<float> a, GemmB<float> b, float* c, int64_t ldc,
          bool add, Crew* crew) {
  gemm_then<kMany>(m_count, n_count, k_count, a, b, c, ldc, {.plus = add ? c : nullptr}, crew);
}

// Of leaves of few rows tiles would be half empty. All who share a batch choose alike.
template <bool kMany>
void gemm_tree(int64_t m_count, int64_t n_count, Leaves leaves, GemmA<float> a, GemmB<float> b, float* c,
               int64_t ldc, bool add, Crew* crew, GradientTaker<float>* taker) {
  const bool are_long = kMany || leaves.shortest >= kShortChunk;
  const auto product = are_long && is_by_tiles<true>(n_count, 0) ? &multiply_tree : kAvx512Kernels.gemm_tree;
  product(m_count, n_count, leaves, a, b, c, ldc, add, crew, taker);
}

}  // namespace dtrain::engine::DTRAIN_ISA
