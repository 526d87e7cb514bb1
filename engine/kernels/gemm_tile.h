// A tile of a product, kRows x kColumns elements, which stays in registers while k runs: of A's rows and a panel of
// B's columns, wherever these lie.
#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "engine/kernels/kernels.h"
#include "engine/kernels/vector.h"

namespace dtrain::engine::DTRAIN_ISA {

// The register file: 32 of 64 bytes, or 16 of 32 or 16 bytes.
inline constexpr int kRows = DTRAIN_VECTOR_BYTES == 64 ? 14 : 6;
inline constexpr int kVectors = 2;
// How early rows of B are asked for: they may be far apart, which the processor does not foresee.
inline constexpr int64_t kRowsAhead = 24;
template <class T>
inline constexpr int kColumns = kVectors * kLanes<T>;

// A tile that lies in memory, kColumns wide.
template <class T>
using Tile = std::array<T, static_cast<size_t>(kRows * kColumns<T>)>;

// What follows the sum while it is in registers: `plus` is added, then `bias`, one row; then it is multiplied by
// `times`, and is zero where `where` isn't positive: rows of these lie as those of the result.
template <class T>
struct Ending {
  const T* plus = nullptr;
  const T* bias = nullptr;
  bool relu = false;
  const T* times = nullptr;
  const T* where = nullptr;
};

// `acc` = A B of one k (kFirst), or `acc` += A B: R rows of C vectors. A's element m is a[m rs], B's row begins at b.
template <class T, bool kFirst, int R, int C>
DTRAIN_INLINE void add_outer(const T* a, int64_t rs, const T* b, Vector<T> (&acc)[R][C]) {
  Vector<T> columns[C];
  for (int c = 0; c < C; ++c) columns[c] = load(b + c * kLanes<T>);
#pragma GCC unroll 16
  for (int m = 0; m < R; ++m, a += rs) {
    const Vector<T> each = splat(*a);
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) acc[m][c] = kFirst ? each * columns[c] : acc[m][c] + each * columns[c];
  }
}

// `acc` = A B. A's element (m, k) is a[m rs + k cs], B's row k begins at b + k ldb. The first k is multiplied, not
// added to zero: on Zen 3 multiply-adds onto registers that were just zeroed cost a leaf of 16 rows an eighth.
template <class T, int R, int C>
DTRAIN_INLINE void multiply(int64_t k_count, const T* a, int64_t rs, int64_t cs, const T* b, int64_t ldb,
                            Vector<T> (&acc)[R][C]) {
  if (k_count == 0) {
    for (auto& row : acc) std::fill_n(row, C, Vector<T>{});
    return;
  }
  add_outer<T, true>(a, rs, b, acc);
#pragma GCC unroll 4   // on Zen 4 leaves of 16 rows, all in the cache, take a twentieth less
  for (int64_t k = 1; k < k_count; ++k) {
    a += cs;
    b += ldb;
    for (int c = 0; c < C; ++c) __builtin_prefetch(b + kRowsAhead * ldb + c * kLanes<T>);
    add_outer<T, false>(a, rs, b, acc);
  }
}

// `acc` += rows of `ld`.
template <class T, int R, int C>
DTRAIN_INLINE void add_rows(const T* rows, int64_t ld, Vector<T> (&acc)[R][C]) {
#pragma GCC unroll 16
  for (int m = 0; m < R; ++m, rows += ld) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) acc[m][c] += load(rows + c * kLanes<T>);
  }
}
template <class T, int R, int C>
DTRAIN_INLINE void store_rows(const Vector<T> (&acc)[R][C], T* rows, int64_t ld) {
#pragma GCC unroll 16
  for (int m = 0; m < R; ++m, rows += ld) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) store(rows + c * kLanes<T>, acc[m][c]);
  }
}

// What follows a sum; rows of C, and of what the ending names, lie `ld` apart.
template <class T, int R, int C>
DTRAIN_INLINE void end_tile(const Ending<T>& ending, int64_t ld, Vector<T> (&acc)[R][C]) {
  if (ending.plus != nullptr) add_rows<T>(ending.plus, ld, acc);
  if (ending.bias != nullptr) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      const Vector<T> bias = load(ending.bias + c * kLanes<T>);
#pragma GCC unroll 16
      for (int m = 0; m < R; ++m) acc[m][c] += bias;
    }
  }
  if (ending.relu) {
#pragma GCC unroll 16
    for (int m = 0; m < R; ++m) {
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) acc[m][c] = relu(acc[m][c]);
    }
  }
  if (const T* factors = ending.times; factors != nullptr) {
#pragma GCC unroll 16
    for (int m = 0; m < R; ++m, factors += ld) {
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) acc[m][c] *= load(factors + c * kLanes<T>);
    }
  }
  if (const T* kept = ending.where; kept != nullptr) {
#pragma GCC unroll 16
    for (int m = 0; m < R; ++m, kept += ld) {
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) acc[m][c] = only_where(load(kept + c * kLanes<T>), acc[m][c]);
    }
  }
}

// `out` = A B and its ending; `out` has rows of `ld`.
template <class T, int R, int C>
void multiply_tile(int64_t k_count, const T* a, int64_t rs, int64_t cs, const T* b, int64_t ldb,
                   T* out, int64_t ld, const Ending<T>& ending) {
  Vector<T> acc[R][C];
  multiply<T>(k_count, a, rs, cs, b, ldb, acc);
  end_tile<T>(ending, ld, acc);
  store_rows<T>(acc, out, ld);
}

// What of a tile, whose rows lie `ld` apart, is C's: added to `plus`, if there is any, whose rows lie as C's do.
template <class T>
DTRAIN_INLINE void copy_tile(const T* tile, int64_t ld, int64_t rows, int64_t width, const T* plus, T* c, int64_t ldc) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < width; ++j) {
      const T value = tile[r * ld + j];
      c[r * ldc + j] = plus != nullptr ? value + plus[r * ldc + j] : value;
    }
  }
}

// Asks for what a tile will need when its sum is there, into the second-level cache: memory is far away,
// and the rows far apart.
template <class T, bool kToWrite = false>
DTRAIN_INLINE void prefetch_tile(const T* from, int64_t rows, int64_t ld, int64_t width = kColumns<T>) {
  for (int64_t r = 0; r < rows; ++r, from += ld) {
    for (int64_t j = 0; j < width; j += 64 / static_cast<int64_t>(sizeof(T))) __builtin_prefetch(from + j, kToWrite, 2);
  }
}

// `acc` = A B over `left` rows and over the `right` ones after them, at least one each, and the sum of both.
template <class T, int R, int C>
DTRAIN_INLINE void multiply_pair(int64_t left, int64_t right, const T* a, int64_t rs, int64_t cs, const T* b,
                                 int64_t ldb, Vector<T> (&acc)[R][C]) {
  Vector<T> other[R][C];
  const T *a_right = a + left * cs, *b_right = b + left * ldb;
  add_outer<T, true>(a, rs, b, acc);
  add_outer<T, true>(a_right, rs, b_right, other);
  const auto add_next = [&](const T*& a_at, const T*& b_at, auto& to) __attribute__((always_inline)) {
    a_at += cs;
    b_at += ldb;
    add_outer<T, false>(a_at, rs, b_at, to);
  };
  const int64_t both = std::min(left, right);
#pragma GCC unroll 4
  for (int64_t k = 1; k < both; ++k) {
    add_next(a, b, acc);
    add_next(a_right, b_right, other);
  }
  for (int64_t k = both; k < left; ++k) add_next(a, b, acc);
  for (int64_t k = both; k < right; ++k) add_next(a_right, b_right, other);
#pragma GCC unroll 16
  for (int m = 0; m < R; ++m) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) acc[m][c] += other[m][c];
  }
}

// `out` = A B without an ending, k cut at the ends of leaves, whose products are summed by the balanced tree. kAtOnce
// leaves, 1 or 2, are in registers together.
template <class T, int R, int C, int kAtOnce>
void sum_leaves(Leaves leaves, const T* a, int64_t rs, int64_t cs, const T* b, int64_t ldb, T* out, int64_t ld) {
  alignas(64) std::array<Tile<T>, kTreeLevels> waiting;  // sums of left siblings, the largest first
  int64_t begin = 0;
  int depth = 0;
  for (int leaf = 0; leaf < leaves.count; leaf += kAtOnce) {
    const int64_t end = leaves.ends[leaf + kAtOnce - 1], middle = leaves.ends[leaf];
    Vector<T> acc[R][C];
    if constexpr (kAtOnce == 2) {
      multiply_pair<T>(middle - begin, end - middle, a, rs, cs, b, ldb, acc);
    } else {
      multiply<T>(end - begin, a, rs, cs, b, ldb, acc);
    }
    a += (end - begin) * cs;
    b += (end - begin) * ldb;
    begin = end;
    for (int rest = leaf / kAtOnce; rest & 1; rest >>= 1) {
      add_rows<T>(waiting[static_cast<size_t>(--depth)].data(), kColumns<T>, acc);
    }
    const bool is_last = leaf + kAtOnce == leaves.count;   // one store for both: the compiler would keep copies for two
    store_rows<T>(acc, is_last ? out : waiting[static_cast<size_t>(depth++)].data(), is_last ? ld : kColumns<T>);
  }
}
// The same of leaves in pairs, with half of the rows after the other one.
template <class T, int R, int C>
void multiply_pairs(Leaves leaves, const T* a, int64_t rs, int64_t cs, const T* b, int64_t ldb, T* out, int64_t ld) {
  constexpr int kUpper = (R + 1) / 2;
  sum_leaves<T, kUpper, C, 2>(leaves, a, rs, cs, b, ldb, out, ld);
  if constexpr (R > kUpper) {
    sum_leaves<T, R - kUpper, C, 2>(leaves, a + kUpper * rs, rs, cs, b, ldb, out + kUpper * ld, ld);
  }
}

// Whether leaves are so short that their sums' ways to memory and back cost more than reading B twice. Registers are
// too few for it but with AVX-512.
inline bool go_in_pairs(Leaves leaves) {
  constexpr int64_t kShort = 20;  // rows: with 16 it is a twentieth less time, with 8 a tenth, with 32 a little more
  if (kRows < 14 || leaves.count % 2 != 0 || leaves.ends[leaves.count - 1] > kShort * leaves.count) return false;
  int64_t begin = 0;
  for (int leaf = 0; leaf < leaves.count; begin = leaves.ends[leaf++]) {
    if (leaves.ends[leaf] == begin) return false;
  }
  return true;
}

template <class T>
using MultiplyTile = void (*)(int64_t, const T*, int64_t, int64_t, const T*, int64_t, T*, int64_t,
                              const Ending<T>&);

template <class T>
using MultiplyLeaves = void (*)(Leaves, const T*, int64_t, int64_t, const T*, int64_t, T*, int64_t);

template <class T, int C, int... R>
constexpr std::array<MultiplyTile<T>, sizeof...(R)> tile_table(std::integer_sequence<int, R...>) {
  return {&multiply_tile<T, R + 1, C>...};
}
template <class T, int C, int... R>
constexpr std::array<MultiplyLeaves<T>, sizeof...(R)> leaves_table(std::integer_sequence<int, R...>) {
  return {&sum_leaves<T, R + 1, C, 1>...};
}
template <class T, int C, int... R>
constexpr std::array<MultiplyLeaves<T>, sizeof...(R)> pairs_table(std::integer_sequence<int, R...>) {
  return {&multiply_pairs<T, R + 1, C>...};
}
inline constexpr auto kEachRows = std::make_integer_sequence<int, kRows>();
// [vectors - 1][rows - 1]
template <class T>
inline constexpr std::array kMultiplyTile = {tile_table<T, 1>(kEachRows), tile_table<T, 2>(kEachRows)};
template <class T>
inline constexpr std::array kMultiplyLeaves = {leaves_table<T, 1>(kEachRows), leaves_table<T, 2>(kEachRows)};
template <class T>
inline constexpr std::array kMultiplyPairs = {pairs_table<T, 1>(kEachRows), pairs_table<T, 2>(kEachRows)};

}  // namespace dtrain::engine::DTRAIN_ISA
