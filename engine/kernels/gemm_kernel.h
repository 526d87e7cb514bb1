// Matrix products. Every element of a product is the sum over k in the order of k, by one multiply-add
// each, wherever in the matrix it lies: so a row of the result has the same bits whatever the other
// rows are, and a batch may be cut anywhere.
//
// A tile of kRows x kColumns elements stays in registers while k runs. B is read in place where its rows
// are contiguous and wide enough, else packed into panels of kColumns. A is read in place, but for a
// transposed one that many panels go over: it is packed into tiles.
#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "engine/kernels/kernels.h"
#include "engine/kernels/scratch.h"
#include "engine/kernels/vector.h"

namespace dtrain::engine::DTRAIN_ISA {

// The register file: 32 of 64 bytes, or 16 of 32 or 16 bytes.
inline constexpr int kRows = DTRAIN_VECTOR_BYTES == 64 ? 14 : 6;
inline constexpr int kVectors = 2;
template <class T>
inline constexpr int kColumns = kVectors * kLanes<T>;

// A tile that lies in memory, kColumns wide, as C in the making.
template <class T>
using Tile = std::array<T, static_cast<size_t>(kRows * kColumns<T>)>;

// `out` = A B (+ addend + ..., in order), R rows of C vectors. A's element (m, k) is a[m rs + k cs], B's
// row k begins at b + k ldb; `out` has rows of `ld`, addends of `addend_ld`.
template <class T, int R, int C>
void multiply_tile(int64_t k_count, const T* a, int64_t rs, int64_t cs, const T* b, int64_t ldb,
                   T* out, int64_t ld, const T* const* addends, int addend_count,
                   int64_t addend_ld) {
  Vector<T> acc[R][C] = {};
  for (int64_t k = 0; k < k_count; ++k) {
    Vector<T> columns[C];
    for (int c = 0; c < C; ++c) columns[c] = load(b + c * kLanes<T>);
    const T* row = a;
#pragma GCC unroll 16
    for (int m = 0; m < R; ++m, row += rs) {
      const Vector<T> each = splat(*row);
#pragma GCC unroll 2
      for (int c = 0; c < C; ++c) acc[m][c] += each * columns[c];
    }
    a += cs;
    b += ldb;
  }
  for (int i = 0; i < addend_count; ++i) {
#pragma GCC unroll 16
    for (int m = 0; m < R; ++m) {
#pragma GCC unroll 2
      for (int c = 0; c < C; ++c) acc[m][c] += load(addends[i] + m * addend_ld + c * kLanes<T>);
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < R; ++m) {
#pragma GCC unroll 2
    for (int c = 0; c < C; ++c) store(out + m * ld + c * kLanes<T>, acc[m][c]);
  }
}

template <class T>
using MultiplyTile = void (*)(int64_t, const T*, int64_t, int64_t, const T*, int64_t, T*, int64_t,
                              const T* const*, int, int64_t);

template <class T, int C, int... R>
constexpr std::array<MultiplyTile<T>, sizeof...(R)> tile_table(std::integer_sequence<int, R...>) {
  return {&multiply_tile<T, R + 1, C>...};
}
// [vectors - 1][rows - 1]
template <class T>
inline constexpr std::array<std::array<MultiplyTile<T>, kRows>, kVectors> kMultiplyTile = {
    tile_table<T, 1>(std::make_integer_sequence<int, kRows>()),
    tile_table<T, 2>(std::make_integer_sequence<int, kRows>())};

// kColumns columns of B, or what is left of them, as tiles want them: `data` has rows of `ld`, at least
// `vectors` wide.
template <class T>
struct Panel {
  const T* data;
  int64_t ld;
  int64_t width;
  int vectors;

  bool is_full() const { return width == vectors * kLanes<T>; }
  MultiplyTile<T> multiply(int rows) const {
    return kMultiplyTile<T>[static_cast<size_t>(vectors - 1)][static_cast<size_t>(rows - 1)];
  }
};

// Columns [n, n + width) of B, next to each other, zero up to `ld`.
template <class T>
void pack(const GemmB<T>& b, int64_t n, int64_t width, int64_t k_count, T* to, int64_t ld) {
  if (width < ld) std::fill(to, to + k_count * ld, T(0));
  if (b.column_stride == 1) {
    for (int64_t k = 0; k < k_count; ++k) std::copy_n(b.data + k * b.row_stride + n, width, to + k * ld);
    return;
  }
  // Transposed: along k in the inner loop, where it is contiguous.
  constexpr int64_t kBlock = 16;
  for (int64_t k0 = 0; k0 < k_count; k0 += kBlock) {
    const int64_t k1 = std::min(k_count, k0 + kBlock);
    for (int64_t j = 0; j < width; ++j) {
      const T* column = b.data + (n + j) * b.column_stride;
      for (int64_t k = k0; k < k1; ++k) to[k * ld + j] = column[k * b.row_stride];
    }
  }
}

// In place if its rows are contiguous, wide enough, and not so far apart that they push each other out
// of the cache while `rows` rows of A go over them.
template <class T>
Panel<T> panel_of(const GemmB<T>& b, int64_t n, int64_t n_count, int64_t k_count, int64_t rows) {
  Panel<T> panel{b.data + n, b.row_stride, std::min<int64_t>(kColumns<T>, n_count - n), kVectors};
  if (panel.width <= kLanes<T>) panel.vectors = 1;
  const bool far_apart = b.row_stride * static_cast<int64_t>(sizeof(T)) >= 1024 && rows > 2 * kRows;
  if (b.column_stride == 1 && panel.is_full() && !far_apart) return panel;
  panel.ld = panel.vectors * kLanes<T>;
  T* packed = scratch<T>(Scratch::Panel, k_count * panel.ld);
  pack(b, n, panel.width, k_count, packed, panel.ld);
  panel.data = packed;
  return panel;
}

// The tiles of a column panel, top to bottom, as even as they come: 64 rows are 13 13 13 13 12.
template <class Body>
void for_tiles(int64_t rows, Body body) {
  const int64_t tiles = (rows + kRows - 1) / kRows;
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t begin = i * rows / tiles;
    body(begin, static_cast<int>((i + 1) * rows / tiles - begin));
  }
}

// A as the tiles read it: in place, or packed tile after tile, [k][kRows] each.
template <class T>
struct TileRows {
  const T* data;
  int64_t row_stride, column_stride, tile_stride;
  bool packed;
  const T* tile(int64_t first_row) const {
    return packed ? data + first_row * tile_stride : data + first_row * row_stride;
  }
};

template <class T>
TileRows<T> rows_of(const GemmA<T>& a, int64_t m_count, int64_t n_count, int64_t k_count) {
  if (a.row_stride != 1 || n_count <= 2 * kColumns<T>) {
    return {a.data, a.row_stride, a.column_stride, 0, false};
  }
  T* packed = scratch<T>(Scratch::Tiles, m_count * k_count);
  for_tiles(m_count, [&](int64_t m, int rows) {
    T* to = packed + m * k_count;
    for (int64_t k = 0; k < k_count; ++k, to += rows) {
      const T* from = a.data + m + k * a.column_stride;
      for (int r = 0; r < rows; ++r) to[r] = from[r];
    }
  });
  return {packed, 1, 0, k_count, true};
}

// What of a tile is C's.
template <class T>
void copy_tile(const T* tile, int64_t ld, int rows, int64_t width, T* c, int64_t ldc, bool add) {
  for (int r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < width; ++j) {
      c[r * ldc + j] = add ? tile[r * ld + j] + c[r * ldc + j] : tile[r * ld + j];
    }
  }
}

template <class T>
void gemm(int64_t m_count, int64_t n_count, int64_t k_count, GemmA<T> a, GemmB<T> b, T* c,
          int64_t ldc, bool add) {
  Tile<T> tile;
  const TileRows<T> rows_in = rows_of(a, m_count, n_count, k_count);
  for (int64_t n = 0; n < n_count; n += kColumns<T>) {
    const Panel<T> panel = panel_of(b, n, n_count, k_count, m_count);
    for_tiles(m_count, [&](int64_t m, int rows) {
      const T* from = rows_in.tile(m);
      const int64_t rs = rows_in.row_stride, cs = rows_in.packed ? rows : rows_in.column_stride;
      T* to = c + m * ldc + n;
      if (panel.is_full()) {
        const T* const before = to;
        panel.multiply(rows)(k_count, from, rs, cs, panel.data, panel.ld, to,
                             ldc, &before, add ? 1 : 0, ldc);
        return;
      }
      panel.multiply(rows)(k_count, from, rs, cs, panel.data, panel.ld,
                           tile.data(), kColumns<T>, nullptr, 0, 0);
      copy_tile(tile.data(), kColumns<T>, rows, panel.width, to, ldc, add);
    });
  }
}

// The same, k cut at the ends of leaves, whose products are summed by the balanced tree.
template <class T>
void gemm_tree(int64_t m_count, int64_t n_count, Leaves leaves, GemmA<T> a, GemmB<T> b, T* c,
               int64_t ldc, bool add) {
  if (leaves.count == 1) return gemm(m_count, n_count, leaves.ends[0], a, b, c, ldc, add);
  // The sums that wait for their right siblings, the largest first.
  std::array<Tile<T>, kTreeLevels> waiting;
  const TileRows<T> rows_in = rows_of(a, m_count, n_count, leaves.ends[leaves.count - 1]);
  for (int64_t n = 0; n < n_count; n += kColumns<T>) {
    const Panel<T> panel = panel_of(b, n, n_count, leaves.ends[leaves.count - 1], m_count);
    for_tiles(m_count, [&](int64_t m, int rows) {
      const T* from = rows_in.tile(m);
      const int64_t rs = rows_in.row_stride, cs = rows_in.packed ? rows : rows_in.column_stride;
      T* to = c + m * ldc + n;
      const bool in_place = panel.is_full() && !add;
      int64_t k = 0;
      int depth = 0;
      for (int leaf = 0; leaf < leaves.count; ++leaf) {
        std::array<const T*, kTreeLevels> siblings;
        int joined = 0;
        for (int rest = leaf; rest & 1; rest >>= 1) {
          siblings[static_cast<size_t>(joined++)] = waiting[static_cast<size_t>(--depth)].data();
        }
        const bool last = leaf + 1 == leaves.count && in_place;
        panel.multiply(rows)(leaves.ends[leaf] - k, from + k * cs, rs, cs, panel.data + k * panel.ld, panel.ld,
                             last ? to : waiting[static_cast<size_t>(depth)].data(),
                             last ? ldc : kColumns<T>, siblings.data(), joined, kColumns<T>);
        ++depth;
        k = leaves.ends[leaf];
      }
      if (!in_place) copy_tile(waiting[0].data(), kColumns<T>, rows, panel.width, to, ldc, add);
    });
  }
}

}  // namespace dtrain::engine::DTRAIN_ISA
