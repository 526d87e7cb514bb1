// Copies of parts of matrices, laid out as the tiles of a product read them.
#pragma once

#include <algorithm>

#include "engine/kernels/kernels.h"
#include "engine/kernels/transpose.h"
#include "engine/kernels/vector.h"

namespace dtrain::engine::DTRAIN_ISA {

// kLanes rows of as many columns, that lie `from_ld` apart, become as many rows that lie `to_ld` apart.
template <class T>
DTRAIN_INLINE void transpose_square(const T* from, int64_t from_ld, T* to, int64_t to_ld) {
  Vector<T> rows[kLanes<T>];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes<T>; ++i) rows[i] = load(from + i * from_ld);
  transpose(rows);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes<T>; ++i) store(to + i * to_ld, rows[i]);
}

// Columns [n, n + width) of B, rows of `ld` in `to`, zero from `width` on.
template <class T>
void pack_panel(const GemmB<T>& b, int64_t n, int64_t width, int64_t k_count, T* to, int64_t ld) {
  constexpr int64_t kCount = kLanes<T>;
  if (width < ld) std::fill(to, to + k_count * ld, T(0));
  const auto one_by_one = [&](int64_t j0, int64_t j1, int64_t k0, int64_t k1) {
    for (int64_t j = j0; j < j1; ++j) {
      const T* column = b.data + (n + j) * b.column_stride;
      for (int64_t k = k0; k < k1; ++k) to[k * ld + j] = column[k * b.row_stride];
    }
  };
  int64_t k = 0;
  if (b.row_stride == 1) {
    const int64_t whole = width / kCount * kCount;
    for (; k + kCount <= k_count; k += kCount) {
      for (int64_t j = 0; j < whole; j += kCount) {
        transpose_square<T>(b.data + (n + j) * b.column_stride + k, b.column_stride, to + k * ld + j, ld);
      }
      one_by_one(whole, width, k, k + kCount);
    }
  } else if (b.column_stride == 1) {
    for (; k < k_count; ++k) {
      const T* const from = b.data + k * b.row_stride + n;
      for_vectors<T>(width, [&](auto load_at, auto store_at) { store_at(to + k * ld, load_at(from)); });
    }
  }
  one_by_one(0, width, k, k_count);
}

// Whole panels of `kWidth` columns side by side, from column n on, of a B whose rows are contiguous: each
// `step` after the one before. A row of B is read along, which memory is fastest at.
template <class T, int kWidth>
void pack_panels(const GemmB<T>& b, int64_t n, int64_t panels, int64_t k_count, T* to, int64_t step) {
  for (int64_t k = 0; k < k_count; ++k, to += kWidth) {
    const T* from = b.data + k * b.row_stride + n;
    T* at = to;
    for (int64_t i = 0; i < panels; ++i, from += kWidth, at += step) {
      for (int j = 0; j < kWidth; j += kLanes<T>) store(at + j, load(from + j));
    }
  }
}

// `rows` elements as whole vectors: what is beyond them is written as well.
template <class T>
DTRAIN_INLINE void copy_vectors(const T* from, int64_t rows, T* to) {
  store(to, load(from));
  for (int64_t r = kLanes<T>; r < rows; r += kLanes<T>) store(to + r, load(from + r));
}

// Tiles of an A whose columns are contiguous, next to each other from row firsts[0] on: tile i has rows
// [firsts[i], firsts[i + 1]) and becomes [k][rows], `step` after the one before. A is read along, too.
template <class T>
void pack_tiles(int64_t k_count, const GemmA<T>& a, const int64_t* firsts, int64_t tiles, T* to, int64_t step) {
  int64_t fewest = firsts[1] - firsts[0];
  for (int64_t i = 1; i < tiles; ++i) fewest = std::min(fewest, firsts[i + 1] - firsts[i]);
  // Vectors reach beyond the rows of a tile: that is written again with the next k, but for the last ones.
  const int64_t whole = std::max<int64_t>(0, k_count - (kLanes<T> + fewest - 1) / fewest - 1);
  for (int64_t k = 0; k < k_count; ++k) {
    const T* const column = a.data + k * a.column_stride;
    for (int64_t i = 0; i < tiles; ++i) {
      const int64_t m = firsts[i], rows = firsts[i + 1] - m;
      T* const at = to + i * step + k * rows;
      if (k < whole) {
        copy_vectors(column + m, rows, at);
      } else {
        for (int64_t r = 0; r < rows; ++r) at[r] = column[m + r];
      }
    }
  }
}

}  // namespace dtrain::engine::DTRAIN_ISA
