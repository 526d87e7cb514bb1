// Matrix products. Every element of a product is the sum over k in the order of k, the first multiplied and
// by one multiply-add each other, wherever in the matrix it lies: so a row of the result has the same bits
// whatever the other rows are, and a batch may be cut anywhere.
//
// A tile of kRows x kColumns elements stays in registers while k runs. B is read in place where its rows
// are contiguous and close together, else packed into panels of kColumns; A is read in place, but for a
// transposed one that several panels go over: it is packed into tiles. What follows a product (a bias, an
// activation) happens to a tile while it is in the cache.
#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "engine/gradient_taker.h"
#include "engine/kernels/activations.h"
#include "engine/kernels/crew.h"
#include "engine/kernels/kernels.h"
#include "engine/kernels/pack.h"
#include "engine/kernels/scratch.h"
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
#pragma GCC unroll 2
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
#pragma GCC unroll 2
    for (int c = 0; c < C; ++c) acc[m][c] += load(rows + c * kLanes<T>);
  }
}
template <class T, int R, int C>
DTRAIN_INLINE void store_rows(const Vector<T> (&acc)[R][C], T* rows, int64_t ld) {
#pragma GCC unroll 16
  for (int m = 0; m < R; ++m, rows += ld) {
#pragma GCC unroll 2
    for (int c = 0; c < C; ++c) store(rows + c * kLanes<T>, acc[m][c]);
  }
}

// `out` = A B and its ending; `out` has rows of `ld`.
template <class T, int R, int C>
void multiply_tile(int64_t k_count, const T* a, int64_t rs, int64_t cs, const T* b, int64_t ldb,
                   T* out, int64_t ld, const Ending<T>& ending) {
  Vector<T> acc[R][C];
  multiply<T>(k_count, a, rs, cs, b, ldb, acc);
  if (ending.plus != nullptr) add_rows<T>(ending.plus, ld, acc);
  if (ending.bias != nullptr) {
#pragma GCC unroll 2
    for (int c = 0; c < C; ++c) {
      const Vector<T> bias = load(ending.bias + c * kLanes<T>);
#pragma GCC unroll 16
      for (int m = 0; m < R; ++m) acc[m][c] += bias;
    }
  }
  if (ending.relu) {
#pragma GCC unroll 16
    for (int m = 0; m < R; ++m) {
#pragma GCC unroll 2
      for (int c = 0; c < C; ++c) acc[m][c] = relu(acc[m][c]);
    }
  }
  if (const T* factors = ending.times; factors != nullptr) {
#pragma GCC unroll 16
    for (int m = 0; m < R; ++m, factors += ld) {
#pragma GCC unroll 2
      for (int c = 0; c < C; ++c) acc[m][c] *= load(factors + c * kLanes<T>);
    }
  }
  if (const T* kept = ending.where; kept != nullptr) {
#pragma GCC unroll 16
    for (int m = 0; m < R; ++m, kept += ld) {
#pragma GCC unroll 2
      for (int c = 0; c < C; ++c) acc[m][c] = only_where(load(kept + c * kLanes<T>), acc[m][c]);
    }
  }
  store_rows<T>(acc, out, ld);
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
#pragma GCC unroll 2
  for (int64_t k = 1; k < both; ++k) {
    add_next(a, b, acc);
    add_next(a_right, b_right, other);
  }
  for (int64_t k = both; k < left; ++k) add_next(a, b, acc);
  for (int64_t k = both; k < right; ++k) add_next(a_right, b_right, other);
#pragma GCC unroll 16
  for (int m = 0; m < R; ++m) {
#pragma GCC unroll 2
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
template <class T, int R, int C>
void multiply_leaves(Leaves leaves, const T* a, int64_t rs, int64_t cs, const T* b, int64_t ldb, T* out, int64_t ld) {
  sum_leaves<T, R, C, 1>(leaves, a, rs, cs, b, ldb, out, ld);
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
  return {&multiply_leaves<T, R + 1, C>...};
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
  MultiplyLeaves<T> multiply_leaves(int rows, bool in_pairs) const {
    const auto& table = in_pairs ? kMultiplyPairs<T> : kMultiplyLeaves<T>;
    return table[static_cast<size_t>(vectors - 1)][static_cast<size_t>(rows - 1)];
  }
};

// Rows [m, m + rows) of A from some k on, as a tile reads them.
template <class T>
struct TileRows {
  const T* data;
  int64_t row_stride, column_stride;
};

// What of a matrix is to stay in the second-level cache while a product goes over it again and again.
inline constexpr int64_t kBlockBytes = 512 * 1024;
// Tiles that go over a panel in place rather than have it packed for them.
inline constexpr int64_t kTilesInPlace = 12;
// Panels, and tiles of A, that are packed at once.
inline constexpr int64_t kPanelsAtOnce = 8;
inline constexpr int64_t kReadBytes = 256;   // of a row of B, at the least
inline constexpr int64_t kTilesAtOnce = 20;

// A product cut up: columns into chunks of panels, rows into blocks of tiles. For a chunk and a block all
// that is read lies in the second-level cache, and the panel of the moment in the first.
template <class T>
class Cut {
 public:
  Cut(int64_t m_count, int64_t n_count, int64_t k_count, const GemmA<T>& a, const GemmB<T>& b)
      : m_count_(m_count),
        n_count_(n_count),
        k_count_(k_count),
        a_(a),
        b_(b),
        tiles_((m_count + kRows - 1) / kRows),
        tile_step_(kRows * k_count + kLine),
        panel_step_(kColumns<T> * k_count + 4 * kLine) {
    const int64_t row_bytes = std::max<int64_t>(1, k_count) * static_cast<int64_t>(sizeof(T));
    // Blocks of as many tiles each, as far as it goes.
    const int64_t most_tiles = std::max<int64_t>(1, kBlockBytes / row_bytes / kRows);
    const int64_t blocks = std::max<int64_t>(1, (tiles_ + most_tiles - 1) / most_tiles);
    tiles_of_block_ = (tiles_ + blocks - 1) / blocks;
    panels_of_chunk_ = std::max<int64_t>(1, 2 * kBlockBytes / row_bytes / kColumns<T>);
    // What is gone over once only takes the place of what was there before; but rows are read as wide as memory likes.
    if (tiles_ <= tiles_of_block_) panels_of_chunk_ = b.column_stride == 1 ? kReadBytes / kPanelBytes : 1;
    const int64_t panels = (n_count + kColumns<T> - 1) / kColumns<T>;
    panels_of_chunk_ = std::min(panels_of_chunk_, panels);
    // In place where rows of B are contiguous, and not so far apart that they push each other out of the
    // first-level cache while many tiles go over them.
    const bool far_apart =
        b.row_stride * static_cast<int64_t>(sizeof(T)) >= 1024 && m_count > kTilesInPlace * kRows;
    packs_panels_ = b.column_stride != 1 || far_apart;
    // A transposed A is worth packing where several panels go over it.
    packs_tiles_ = a.row_stride == 1 && a.column_stride != 1 && panels > 2;
    if (packs_tiles_) packed_tiles_ = scratch<T>(Scratch::Tiles, tiles_ * tile_step_);
    packed_panels_ = scratch<T>(Scratch::Panel, panels_of_chunk_ * panel_step_);
  }

  // body(panel, n, in, m, rows), of every tile of C's columns.
  template <class Body>
  void run(Range of, const Body& body) {
    const int64_t columns = panels_of_chunk_ * kColumns<T>;
    for (int64_t chunk = of.begin; chunk < of.end; chunk += columns) {
      const int64_t chunk_end = std::min(of.end, chunk + columns);
      pack_chunk(chunk, chunk_end);
      for (int64_t block = 0; block < tiles_; block += tiles_of_block_) {
        const int64_t block_end = std::min(tiles_, block + tiles_of_block_);
        if (packs_tiles_ && !tiles_are_packed_) pack_block(block, block_end);
        for (int64_t n = chunk; n < chunk_end; n += kColumns<T>) {
          const Panel<T> panel = panel_at(n, (n - chunk) / kColumns<T>);
          for (int64_t tile = block; tile < block_end; ++tile) {
            const int64_t m = first_row(tile);
            const int rows = static_cast<int>(first_row(tile + 1) - m);
            body(panel, n, tile_at(tile, m, rows), m, rows);
          }
        }
      }
      tiles_are_packed_ = true;
    }
  }

 private:
  // What lies a power of two apart would be pushed out of the cache by each other; so it doesn't.
  static constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));
  static constexpr int64_t kPanelBytes = kColumns<T> * static_cast<int64_t>(sizeof(T));   // of a row

  // As even as they come: 64 rows are 13 13 13 13 12.
  int64_t first_row(int64_t tile) const { return tile * m_count_ / tiles_; }

  void pack_block(int64_t begin, int64_t end) {
    std::array<int64_t, kTilesAtOnce + 1> firsts;
    while (begin < end) {
      const int64_t tiles = std::min(kTilesAtOnce, end - begin);
      for (int64_t i = 0; i <= tiles; ++i) firsts[static_cast<size_t>(i)] = first_row(begin + i);
      pack_tiles(k_count_, a_, firsts.data(), tiles, packed_tiles_ + begin * tile_step_, tile_step_);
      begin += tiles;
    }
  }
  TileRows<T> tile_at(int64_t tile, int64_t m, int rows) const {
    if (packs_tiles_) return {packed_tiles_ + tile * tile_step_, 1, rows};
    return {a_.data + m * a_.row_stride, a_.row_stride, a_.column_stride};
  }

  Panel<T> unpacked(int64_t n) const {
    Panel<T> panel{b_.data + n, b_.row_stride, std::min<int64_t>(kColumns<T>, n_count_ - n), kVectors};
    if (panel.width <= kLanes<T>) panel.vectors = 1;
    return panel;
  }
  Panel<T> panel_at(int64_t n, int64_t index) const {
    Panel<T> panel = unpacked(n);
    if (!packs_panels_ && panel.is_full()) return panel;
    panel.ld = panel.vectors * kLanes<T>;
    panel.data = packed_panels_ + index * panel_step_;
    return panel;
  }
  void pack_chunk(int64_t n, int64_t end) {
    T* to = packed_panels_;
    while (n < end) {
      int64_t panels = b_.column_stride == 1 ? std::min(kPanelsAtOnce, (end - n) / kColumns<T>) : 0;
      if (panels > 0) {
        if (packs_panels_) pack_panels<T, kColumns<T>>(b_, n, panels, k_count_, to, panel_step_);
      } else {
        const Panel<T> panel = unpacked(n);
        if (packs_panels_ || !panel.is_full()) {
          pack_panel(b_, n, panel.width, k_count_, to, panel.vectors * kLanes<T>);
        }
        panels = 1;
      }
      n += panels * kColumns<T>;
      to += panels * panel_step_;
    }
  }

  const int64_t m_count_, n_count_, k_count_;
  const GemmA<T> a_;
  const GemmB<T> b_;
  const int64_t tiles_, tile_step_, panel_step_;
  int64_t tiles_of_block_, panels_of_chunk_;
  bool packs_panels_, packs_tiles_;
  bool tiles_are_packed_ = false;   // once for all columns
  T *packed_tiles_ = nullptr, *packed_panels_;
};

// What of a tile is C's.
template <class T>
void copy_tile(const T* tile, int rows, int64_t width, const T* plus, T* c, int64_t ldc) {
  for (int r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < width; ++j) {
      const T value = tile[r * kColumns<T> + j];
      c[r * ldc + j] = plus != nullptr ? value + plus[r * ldc + j] : value;
    }
  }
}

// The ending of a tile of C that is narrower than a panel.
template <class T>
void end_narrow_tile(const Then<T>& then, int64_t at, int64_t n, int rows, int64_t width, T* c, int64_t ldc) {
  for (int r = 0; r < rows; ++r, at += ldc) {
    T* const row = c + at;
    for_vectors<T>(width, [&](auto load_at, auto store_at) {
      Vector<T> x = load_at(row);
      if (then.bias != nullptr) x += load_at(then.bias + n);
      if (then.relu) x = relu(x);
      if (then.times != nullptr) x *= load_at(then.times + at);
      if (then.where != nullptr) x = only_where(load_at(then.where + at), x);
      store_at(row, x);
    });
  }
}

template <class T>
void gelu_tile(int rows, int64_t width, T* x, T* slopes, int64_t ld) {
  for (int r = 0; r < rows; ++r, x += ld, slopes += ld) {
    for_vectors<T>(width, [&](auto load_at, auto store_at) {
      const Gelu<T> y = gelu<T>(load_at(x));
      store_at(x, y.value);
      store_at(slopes, y.slope);
    });
  }
}

// Asks for what a tile will need when its sum is there, into the second-level cache: memory is far away,
// and the rows far apart.
template <class T, bool kToWrite = false>
DTRAIN_INLINE void prefetch_tile(const T* from, int rows, int64_t ld) {
  for (int r = 0; r < rows; ++r, from += ld) {
    for (int64_t j = 0; j < kColumns<T>; j += 64 / static_cast<int64_t>(sizeof(T))) {
      __builtin_prefetch(from + j, kToWrite, 2);
    }
  }
}

// body(panel, n, in, m, rows), of every tile of C, by a crew if there is one: each hand packs A once, for all its columns.
template <class T, class Body>
void for_tiles(int64_t m_count, int64_t n_count, int64_t k_count, const GemmA<T>& a, const GemmB<T>& b, Crew* crew,
               const Body& body) {
  if (crew != nullptr && n_count < Crew::kColumns * crew->hands()) {
    // Too narrow for all hands: they share rows.
    const int64_t rows_of_hand = (m_count + crew->hands() - 1) / crew->hands();
    return Crew::share(crew, m_count, rows_of_hand, kRows, [&](Range rows) {
      Cut<T> cut(rows.size(), n_count, k_count, {a.data + rows.begin * a.row_stride, a.row_stride, a.column_stride}, b);
      cut.run({0, n_count}, [&](const Panel<T>& panel, int64_t n, const TileRows<T>& in, int64_t m, int count) {
        body(panel, n, in, rows.begin + m, count);
      });
    });
  }
  Crew::share_prepared(crew, n_count, Crew::kColumns, Crew::kColumns, [&] {
    return [&body, cut = Cut<T>(m_count, n_count, k_count, a, b)](Range columns) mutable { cut.run(columns, body); };
  });
}

template <class T>
void gemm_then(int64_t m_count, int64_t n_count, int64_t k_count, GemmA<T> a, GemmB<T> b, T* c,
               int64_t ldc, const Then<T>& then, Crew* crew) {
  const auto finish_tile = [=](const Panel<T>& panel, int64_t n, const TileRows<T>& in, int64_t m, int rows) {
    const int64_t at = m * ldc + n;
    const auto place = [at](auto* matrix) { return matrix == nullptr ? nullptr : matrix + at; };
    const T *const plus = place(then.plus), *const times = place(then.times), *const where = place(then.where);
    const auto multiply = panel.multiply(rows);
    if (panel.is_full()) {
      if (times != nullptr) prefetch_tile(times, rows, ldc);
      const Ending<T> ending{.plus = plus,
                             .bias = then.bias == nullptr ? nullptr : then.bias + n,
                             .relu = then.relu,
                             .times = times,
                             .where = where};
      multiply(k_count, in.data, in.row_stride, in.column_stride, panel.data, panel.ld, c + at, ldc, ending);
    } else {
      Tile<T> tile;
      multiply(k_count, in.data, in.row_stride, in.column_stride, panel.data, panel.ld, tile.data(), kColumns<T>, {});
      copy_tile(tile.data(), rows, panel.width, plus, c + at, ldc);
      if (then.bias != nullptr || times != nullptr || where != nullptr) end_narrow_tile(then, at, n, rows, panel.width, c, ldc);
    }
    if (then.gelu_slope != nullptr) gelu_tile(rows, panel.width, c + at, then.gelu_slope + at, ldc);
  };
  for_tiles<T>(m_count, n_count, k_count, a, b, crew, finish_tile);
}

template <class T>
void gemm(int64_t m_count, int64_t n_count, int64_t k_count, GemmA<T> a, GemmB<T> b, T* c,
          int64_t ldc, bool add, Crew* crew = nullptr) {
  gemm_then<T>(m_count, n_count, k_count, a, b, c, ldc, {.plus = add ? c : nullptr}, crew);
}

// The same, k cut at the ends of leaves, whose products are summed by the balanced tree.
template <class T>
void gemm_tree(int64_t m_count, int64_t n_count, Leaves leaves, GemmA<T> a, GemmB<T> b, T* c,
               int64_t ldc, bool add, Crew* crew, GradientTaker<T>* taker) {
  if (leaves.count == 1 && taker == nullptr) return gemm(m_count, n_count, leaves.ends[0], a, b, c, ldc, add, crew);
  const bool in_pairs = go_in_pairs(leaves);
  const auto sum_tile = [=](const Panel<T>& panel, int64_t n, const TileRows<T>& in, int64_t m, int rows) {
    T* const to = c + m * ldc + n;
    Tile<T> tile;
    const bool in_place = panel.is_full() && !add && taker == nullptr;
    // Others have read what they sum of C: it takes a while until they have given it up.
    if (panel.is_full()) prefetch_tile<T, true>(taker == nullptr ? to : taker->wanted(to), rows, ldc);
    const auto multiply = panel.multiply_leaves(rows, in_pairs);
    multiply(leaves, in.data, in.row_stride, in.column_stride, panel.data, panel.ld, in_place ? to : tile.data(),
             in_place ? ldc : kColumns<T>);
    if (taker != nullptr) {
      taker->take(to, ldc, rows, panel.width, tile.data(), kColumns<T>);
    } else if (!in_place) {
      copy_tile(tile.data(), rows, panel.width, add ? to : nullptr, to, ldc);
    }
  };
  for_tiles<T>(m_count, n_count, leaves.ends[leaves.count - 1], a, b, crew, sum_tile);
}

}  // namespace dtrain::engine::DTRAIN_ISA
