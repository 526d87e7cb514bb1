// A square of vectors turned within registers.
#pragma once

#include <cstddef>
#include <utility>

#include "engine/kernels/vector.h"

namespace dtrain::engine::DTRAIN_ISA {

// Which of the N lanes of two vectors side by side go where: each in turn, from the first halves or the last.
template <class V, size_t N, bool kLast, size_t... I>
DTRAIN_INLINE V interleave(V a, V b, std::index_sequence<I...>) {
  constexpr size_t from = kLast ? N / 2 : 0;
  return __builtin_shufflevector(a, b, static_cast<int>(from + I / 2 + (I % 2) * N)...);
}

// N rows of as many columns become as many rows. Each round is a perfect shuffle of all elements; after log2(N) of
// them rows are columns.
template <class V, size_t N>
DTRAIN_INLINE void transpose(V (&rows)[N]) {
  constexpr auto kAll = std::make_index_sequence<N>();
  V mixed[N];
#pragma GCC unroll 4
  for (size_t round = 1; round < N; round *= 2) {
#pragma GCC unroll 16
    for (size_t i = 0; i < N / 2; ++i) {
      mixed[2 * i] = interleave<V, N, false>(rows[i], rows[i + N / 2], kAll);
      mixed[2 * i + 1] = interleave<V, N, true>(rows[i], rows[i + N / 2], kAll);
    }
#pragma GCC unroll 16
    for (size_t i = 0; i < N; ++i) rows[i] = mixed[i];
  }
}

}  // namespace dtrain::engine::DTRAIN_ISA
