// Matrices of floats as AMX multiplies them. Every float is the sum of three bfloat16, its parts, exactly but for
// what is below 2^-126; of two floats a and b the products a1b1 a1b2 a1b3 a2b1 a2b2 a3b1 are summed, and what is
// left out is below 2^-22 of the product.
//
// Tiles have 16 rows of 16 pairs: rows of a tile of A are its rows, and those of B's are pairs, which lie by
// columns. A tile of A times one of B sums both products of all pairs. What makes a pair does not matter as long
// as it is the same for both, so nothing has to be shuffled.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "engine/kernels/vector.h"

namespace dtrain::engine::DTRAIN_ISA {

inline constexpr int64_t kTileRows = 16, kTileBytes = 1024;
// k that go into three tiles: of one part each, k and k + 16 being a pair. All pairs of parts that are wanted make
// six products of tiles.
inline constexpr int64_t kChunk = 32;
// As many or fewer would leave half of that unused. Then pairs are parts of one k, and three products of tiles do:
// (a1 a2)(b1 b1), (a1 a2)(b2 b2) and (a3 a1)(b1 b3).
inline constexpr int64_t kShortChunk = 16;
inline constexpr int kTilesOfChunk = 3;

// A corner of a matrix, up to 16 x 16: element (row, lane) at data[row row_stride + lane lane_stride].
struct Square {
  const float* data;
  int64_t row_stride, lane_stride;
  int64_t rows, lanes;  // what is beyond them is zero
};

DTRAIN_INLINE Vector<float> load_lanes(const float* from, int64_t count) {
  const auto mask = static_cast<__mmask16>(count >= kTileRows ? 0xffff : (1 << std::max<int64_t>(0, count)) - 1);
  return reinterpret_cast<Vector<float>>(_mm512_maskz_loadu_ps(mask, from));
}

// Rows that are made parts of at once.
inline constexpr int64_t kRowsOfStep = 4;

// Of each four lanes of four vectors, the 4 x 4 that they are.
DTRAIN_INLINE void transpose_quads(const __m512 (&from)[4], Vector<float> (&to)[4]) {
  using Index = int32_t __attribute__((vector_size(64)));
  constexpr Index kLow{0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29};
  constexpr Index kHigh{2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31};
  constexpr Index kFirst{0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29};
  constexpr Index kSecond{2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31};
  const auto v = [&](int i) { return reinterpret_cast<Vector<float>>(from[i]); };
  const Vector<float> a = __builtin_shuffle(v(0), v(1), kLow), b = __builtin_shuffle(v(2), v(3), kLow);
  const Vector<float> c = __builtin_shuffle(v(0), v(1), kHigh), d = __builtin_shuffle(v(2), v(3), kHigh);
  to[0] = __builtin_shuffle(a, b, kFirst);
  to[1] = __builtin_shuffle(a, b, kSecond);
  to[2] = __builtin_shuffle(c, d, kFirst);
  to[3] = __builtin_shuffle(c, d, kSecond);
}

// Of one whose columns are contiguous, from row i on: from each column as many elements, which are then transposed.
DTRAIN_INLINE void load_across(const Square& from, int64_t i, Vector<float> (&rows)[kRowsOfStep]) {
  __m512 across[kRowsOfStep] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
#pragma GCC unroll 16
  for (int64_t lane = 0; lane < kTileRows; ++lane) {
    if (lane >= from.lanes) break;
    __m512& to = across[lane % kRowsOfStep];
    to = _mm512_mask_broadcast_f32x4(to, static_cast<__mmask16>(0xf << lane / kRowsOfStep * kRowsOfStep),
                                     _mm_loadu_ps(from.data + i + lane * from.lane_stride));
  }
  transpose_quads(across, rows);
}

// Rows [i, i + kRowsOfStep).
DTRAIN_INLINE void load_rows(const Square& from, int64_t i, Vector<float> (&rows)[kRowsOfStep]) {
  if (from.lane_stride == 1) {
#pragma GCC unroll 4
    for (int64_t r = 0; r < kRowsOfStep; ++r) {
      rows[r] = load_lanes(from.data + (i + r) * from.row_stride, i + r < from.rows ? from.lanes : 0);
    }
  } else if (from.row_stride == 1 && i + kRowsOfStep <= from.rows) {
    load_across(from, i, rows);
  } else {
    for (int64_t r = 0; r < kRowsOfStep; ++r) {
      rows[r] = Vector<float>{};
      for (int64_t j = 0; i + r < from.rows && j < std::min(kTileRows, from.lanes); ++j) {
        rows[r][j] = from.data[(i + r) * from.row_stride + j * from.lane_stride];
      }
    }
  }
}

// The bits of floats, whose upper halves are bfloat16.
typedef uint32_t Halves __attribute__((vector_size(64)));

// A part is the upper half; the lower one is to be ignored. The first is rounded to nearest: then what is left out of
// products is of either sign, but for squares. What it leaves has 16 bits at most, and the others are 8 of them each.
struct Parts {
  Halves of[3];
};
DTRAIN_INLINE Vector<float> less_part(Vector<float> x, Halves part) {
  return x - reinterpret_cast<Vector<float>>(part & 0xffff0000u);
}
DTRAIN_INLINE Parts parts_of(Vector<float> x) {
  const Halves first = reinterpret_cast<Halves>(x) + 0x8000u;
  x = less_part(x, first);
  const Halves second = reinterpret_cast<Halves>(x);
  return {{first, second, reinterpret_cast<Halves>(less_part(x, second))}};
}

DTRAIN_INLINE void put_pairs(Halves first, Halves second, char* to) {
  const Halves pairs = first >> 16 | (second & 0xffff0000u);
  std::memcpy(to, &pairs, sizeof pairs);
}

// Rows [i, i + kRowsOfStep) of two squares, the k of the second following those of the first, in three tiles that are
// `step` bytes apart.
DTRAIN_INLINE void split_squares(const Square& first, const Square& second, int64_t i, char* tiles, int64_t step) {
  Vector<float> x[kRowsOfStep], y[kRowsOfStep];
  load_rows(first, i, x);
  load_rows(second, i, y);
#pragma GCC unroll 4
  for (int64_t r = 0; r < kRowsOfStep; ++r) {
    const Parts p = parts_of(x[r]), q = parts_of(y[r]);
    char* const to = tiles + 64 * (i + r);
    for (int part = 0; part < kTilesOfChunk; ++part) put_pairs(p.of[part], q.of[part], to + part * step);
  }
}

// The same of one as the tiles of a short chunk: two of A, three of B.
template <bool kIsA>
DTRAIN_INLINE void split_square(const Square& only, int64_t i, char* tiles, int64_t step) {
  Vector<float> x[kRowsOfStep];
  load_rows(only, i, x);
#pragma GCC unroll 4
  for (int64_t r = 0; r < kRowsOfStep; ++r) {
    const auto [one, two, three] = parts_of(x[r]).of;
    char* const to = tiles + 64 * (i + r);
    if (kIsA) {
      put_pairs(one, two, to);
      put_pairs(three, one, to + step);
    } else {
      put_pairs(one, one, to);
      put_pairs(two, two, to + step);
      put_pairs(one, three, to + 2 * step);
    }
  }
}

}  // namespace dtrain::engine::DTRAIN_ISA
