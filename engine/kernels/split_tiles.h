// Matrices of floats as AMX multiplies them. Every float is the sum of three bfloat16, its parts, exactly but for
// what is below 2^-126; of two floats a and b the products a1b1 a1b2 a1b3 a2b1 a2b2 a3b1 are summed, and what is
// left out is below 2^-24 of the product.
//
// Tiles have 16 rows of 16 pairs: rows of a tile of A are its rows, and those of B's are pairs, which lie by
// columns. A tile of A times one of B sums both products of all pairs. What makes a pair does not matter as long
// as it is the same for both, so nothing has to be shuffled.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "engine/kernels/pack.h"
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

// Row i of one whose rows are contiguous.
DTRAIN_INLINE Vector<float> row_of(const Square& from, int64_t i) {
  return load_lanes(from.data + i * from.row_stride, i < from.rows ? from.lanes : 0);
}

// All rows of any other.
inline void load_square(const Square& from, Vector<float> (&rows)[kTileRows]) {
  if (from.row_stride == 1) {
#pragma GCC unroll 16
    for (int64_t i = 0; i < kTileRows; ++i) {
      rows[i] = load_lanes(from.data + i * from.lane_stride, i < from.lanes ? from.rows : 0);
    }
    transpose(rows);
    return;
  }
  for (int64_t i = 0; i < kTileRows; ++i) {
    rows[i] = Vector<float>{};
    for (int64_t j = 0; i < from.rows && j < std::min(kTileRows, from.lanes); ++j) {
      rows[i][j] = from.data[i * from.row_stride + j * from.lane_stride];
    }
  }
}

// The bits of floats, whose upper halves are bfloat16.
typedef uint32_t Halves __attribute__((vector_size(64)));

// A part is the upper half, rounded to nearest; the lower one is to be ignored.
struct Parts {
  Halves of[3];
};
DTRAIN_INLINE Halves upper_part(Vector<float> x) { return reinterpret_cast<Halves>(x) + 0x8000u; }
DTRAIN_INLINE Vector<float> less_part(Vector<float> x, Halves part) {
  return x - reinterpret_cast<Vector<float>>(part & 0xffff0000u);
}
DTRAIN_INLINE Parts parts_of(Vector<float> x) {
  const Halves first = upper_part(x);
  x = less_part(x, first);
  const Halves second = upper_part(x);
  return {{first, second, upper_part(less_part(x, second))}};
}

DTRAIN_INLINE void put_pairs(Halves first, Halves second, char* to) {
  const Halves pairs = first >> 16 | (second & 0xffff0000u);
  std::memcpy(to, &pairs, sizeof pairs);
}

// Two squares, the k of the second following those of the first, as three tiles that are `step` bytes apart. Rows
// that come `kAhead` later are asked for.
template <int64_t kAhead>
DTRAIN_INLINE void split_squares(const Square& first, const Square& second, char* tiles, int64_t step) {
  const auto put = [&](int64_t i, Vector<float> x, Vector<float> y) {
    const Parts p = parts_of(x), q = parts_of(y);
    for (int part = 0; part < kTilesOfChunk; ++part) put_pairs(p.of[part], q.of[part], tiles + 64 * i + part * step);
  };
  if (first.lane_stride == 1) {
    // Those of the next chunk, which may be far apart and far away.
    const int64_t ahead = kAhead == 0 ? 0 : kAhead * first.row_stride;
    for (int64_t i = 0; i < kTileRows; ++i) {
      if (kAhead != 0) __builtin_prefetch(first.data + i * first.row_stride + ahead);
      if (kAhead != 0) __builtin_prefetch(second.data + i * second.row_stride + ahead);
      put(i, row_of(first, i), row_of(second, i));
    }
  } else {
    Vector<float> x[kTileRows], y[kTileRows];
    load_square(first, x);
    load_square(second, y);
    for (int64_t i = 0; i < kTileRows; ++i) put(i, x[i], y[i]);
  }
}

// One as the tiles of a short chunk: two of A, three of B.
template <bool kIsA>
DTRAIN_INLINE void split_square(const Square& only, char* tiles, int64_t step) {
  const auto put = [&](int64_t i, Vector<float> x) {
    const auto [one, two, three] = parts_of(x).of;
    char* const to = tiles + 64 * i;
    if (kIsA) {
      put_pairs(one, two, to);
      put_pairs(three, one, to + step);
    } else {
      put_pairs(one, one, to);
      put_pairs(two, two, to + step);
      put_pairs(one, three, to + 2 * step);
    }
  };
  if (only.lane_stride == 1) {
    for (int64_t i = 0; i < kTileRows; ++i) put(i, row_of(only, i));
  } else {
    Vector<float> x[kTileRows];
    load_square(only, x);
    for (int64_t i = 0; i < kTileRows; ++i) put(i, x[i]);
  }
}

}  // namespace dtrain::engine::DTRAIN_ISA
