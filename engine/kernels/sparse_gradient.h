// Gradients of weights, A B with K the rows of a batch, of which what is common in either is left out as in sparse_gemm.h: columns of the
// one go over panels of the other, leaf by leaf. The sums of a leaf begin with common times those of its rows.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <type_traits>

#include "engine/gradient_taker.h"
#include "engine/kernels/crew.h"
#include "engine/kernels/gemm_tile.h"
#include "engine/kernels/sparse_gemm.h"
#include "engine/kernels/trial.h"
#include "engine/kernels/uncommon_masks.h"

namespace dtrain::engine::DTRAIN_ISA {

inline constexpr int64_t kGradientColumns = 64;   // of a panel
inline constexpr int64_t kTileColumns = 16;   // whose products are put down together

// Of the other: its rows, and what the sums of each leaf begin with.
struct GradientPanel {
  const float* rows;
  const float* sums = nullptr;   // [leaves]; nullptr: zeros
};

// Some chunks of a column and of the panel that it goes over.
struct SparseChunks {
  const float* elements;     // of the whole column
  const uint64_t* masks;     // of these
  const int64_t* begins;     // of these, in rows
  const float* rows;         // of the whole panel
  const float* sums;         // of these, or nullptr
  DTRAIN_INLINE SparseChunks from(int chunk) const {
    return {elements, masks + chunk, begins + chunk, rows, sums == nullptr ? nullptr : sums + chunk * kGradientColumns};
  }
};

// What a sum begins with.
enum class Begin { Zero, Sums, There };

// `acc` = the product of kCount chunks, each a leaf, by the balanced tree.
template <int kCount, Begin kBegin, int C>
DTRAIN_INLINE void sum_chunks(const SparseChunks& chunks, Vector<float> (&acc)[1][C]) {
  if constexpr (kCount == 1) {
    if constexpr (kBegin == Begin::Zero) {
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) acc[0][c] = Vector<float>{};
    } else if constexpr (kBegin == Begin::Sums) {
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) acc[0][c] = load(chunks.sums + c * kLanes<float>);
    }
    const int64_t begin = *chunks.begins;
    add_uncommon<kGradientColumns>(*chunks.masks, chunks.elements + begin, chunks.rows + begin * kGradientColumns, [](Vector<float> x) { return x; }, acc);
  } else {
    Vector<float> right[1][C];
    sum_chunks<kCount / 2, kBegin>(chunks, acc);
    sum_chunks<kCount / 2, kBegin>(chunks.from(kCount / 2), right);
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) acc[0][c] += right[0][c];
  }
}

// Of a tile's columns, each into a row of it. By itself: what it needs must stay in registers.
template <int kCount, Begin kBegin, int C>
__attribute__((noinline)) void sum_tile(SparseChunks chunks, int64_t elements_step, int64_t masks_step, float* tile) {
  for (int64_t i = 0; i < kTileColumns; ++i, tile += kGradientColumns, chunks.elements += elements_step, chunks.masks += masks_step) {
    Vector<float> acc[1][C];
    if constexpr (kBegin == Begin::There) {
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) acc[0][c] = load(tile + c * kLanes<float>);
    }
    sum_chunks<kCount, kBegin>(chunks, acc);
    store_rows<float>(acc, tile, 0);
  }
}

// The same of kLeaves leaves from `first` on; of one it may have several chunks, of more each has one.
template <int kLeaves, int C>
void sum_leaves_of(const TurnedColumns& turned, int64_t column, int first, const GradientPanel& panel, float* tile) {
  const auto add = [&]<Begin kBegin>(std::integral_constant<Begin, kBegin>, int64_t chunk) {
    const float* const sums = panel.sums == nullptr ? nullptr : panel.sums + first * kGradientColumns;
    sum_tile<kLeaves, kBegin, C>({turned.column(column), turned.masks(column) + chunk, turned.begins() + chunk, panel.rows, sums},
                                 turned.column_step(), turned.masks_step(), tile);
  };
  int64_t chunk = turned.first_chunk(first);
  panel.sums == nullptr ? add(std::integral_constant<Begin, Begin::Zero>(), chunk) : add(std::integral_constant<Begin, Begin::Sums>(), chunk);
  if constexpr (kLeaves > 1) return;
  while (++chunk < turned.first_chunk(first + 1)) add(std::integral_constant<Begin, Begin::There>(), chunk);
}

inline constexpr int kMostLeavesAtOnce = 8;   // so many are summed in registers

// Of which matrix what is common is left out.
enum class Sparse { Neither, A, B };

// Ways to compute a gradient, all to the same bits; the last is taken without a trial.
struct GradientWays {
  std::array<Sparse, Trial::kMostWays> ways = {};
  int count = 0;
  void add(Sparse way) { ways[static_cast<size_t>(count++)] = way; }
};

inline GradientWays gradient_ways(int64_t m_count, int64_t n_count, Leaves leaves, const GemmA<float>& a, const GemmB<float>& b) {
  constexpr int64_t kShortLeaf = 8;    // rows: of fewer, ending a leaf takes longer than it does
  constexpr int64_t kLongLeaf = 160;   // of more, a panel does not stay in the first-level cache
  GradientWays found;
  const bool fits = may_leave_out_of_gradient(m_count, n_count) && a.row_stride == 1 && b.column_stride == 1;
  if (fits && a.common.value != 0) {
    // By what all who share the batch know.
    if (leaves.shortest >= kShortLeaf && leaves.shortest < kLongLeaf) {
      found.add(Sparse::A);
      return found;
    }
  }
  found.add(Sparse::Neither);
  const int64_t k_count = leaves.ends[leaves.count - 1];
  if (fits && k_count >= kShortLeaf * leaves.count && k_count <= kLongLeaf * leaves.count) {
    if (b.zeros > 0) found.add(Sparse::B);
    if (a.common.value == 0 && a.common.share > 0) found.add(Sparse::A);
  }
  return found;
}

// So many leaves at once that their rows of a panel stay in the first-level cache.
inline int leaves_at_once(const TurnedColumns& turned, Leaves leaves) {
  if (turned.first_chunk(leaves.count) > leaves.count) return 1;
  int some = std::min(leaves.count, kMostLeavesAtOnce);
  while (some > 1 && leaves.ends[leaves.count - 1] > kSparsePanel / kGradientColumns * (leaves.count / some)) some /= 2;
  return some;
}

// `sums` = before + sums
template <int C>
void add_tile(const float* before, float* sums) {
  for (int64_t r = 0; r < kTileColumns; ++r, before += kGradientColumns, sums += kGradientColumns) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) store(sums + c * kLanes<float>, load(before + c * kLanes<float>) + load(sums + c * kLanes<float>));
  }
}

// put(i, tile) of each kTileColumns columns from i on, times a panel: of the tile's rows of kGradientColumns the
// first `width` are the product. put.announce(i) comes before.
template <class Put>
void for_sparse_tiles(const TurnedColumns& turned, int64_t columns, Leaves leaves, const GradientPanel& panel, int64_t width, const Put& put) {
  constexpr int64_t kTile = kTileColumns * kGradientColumns;
  const int some = leaves_at_once(turned, leaves);
  // Sums of the leaves that came before, of all tiles: left siblings, the largest first.
  float* const waiting = scratch<float>(Scratch::Sums, some == leaves.count ? 0 : kTreeLevels * columns * kGradientColumns);
  const auto multiply = [&](auto count, auto vectors) {
    alignas(64) std::array<float, static_cast<size_t>(kTile)> tile;
    int depth = 0;
    for (int first = 0; first < leaves.count; first += count) {
      const bool is_last = first + count == leaves.count;
      const int siblings = std::countr_one(static_cast<unsigned>(first / count));
      depth -= siblings;
      for (int64_t i = 0; i < columns; i += kTileColumns) {
        if (is_last) put.announce(i);
        const auto place = [&](int level) { return waiting + (level * columns + i) * kGradientColumns; };
        float* const sums = is_last ? tile.data() : place(depth + siblings);
        sum_leaves_of<count, vectors>(turned, i, first, panel, sums);
        for (int level = siblings; level-- > 0;) add_tile<vectors>(place(depth + level), sums);
        if (!is_last && siblings > 0) std::copy_n(sums, kTile, place(depth));
        if (is_last) put(i, tile.data());
      }
      ++depth;
    }
  };
  const auto of_width = [&](auto count) {
    for_width<kGradientColumns>(width, [&](auto vectors) { multiply(count, vectors); });
  };
  switch (some) {
    case 1: return of_width(std::integral_constant<int, 1>());
    case 2: return of_width(std::integral_constant<int, 2>());
    case 4: return of_width(std::integral_constant<int, 4>());
    default: return of_width(std::integral_constant<int, kMostLeavesAtOnce>());
  }
}

// Where elements of C go.
struct GradientPlace {
  float* c;
  int64_t ldc;
  bool add;
  GradientTaker<float>* taker;

  void announce(int64_t m, int64_t n, int64_t rows, int64_t width) const {
    const float* const to = c + m * ldc + n;
    prefetch_tile<float, true>(taker == nullptr ? to : taker->wanted(to), rows, ldc, width);
  }
  void put(int64_t m, int64_t n, int64_t rows, int64_t width, const float* values, int64_t ld) const {
    float* const to = c + m * ldc + n;
    if (taker != nullptr) return taker->take(to, ldc, rows, width, values, ld);
    copy_tile(values, ld, rows, width, add ? to : nullptr, to, ldc);
  }
};

// A's columns, from `first` on, go over panels of B.
struct PutRows {
  const GradientPlace& place;
  int64_t first, n, width;
  void announce(int64_t m) const { place.announce(first + m, n, kTileColumns, width); }
  void operator()(int64_t m, const float* tile) const { place.put(first + m, n, kTileColumns, width, tile, kGradientColumns); }
};
// B's columns go over panels of A: tiles are of C transposed.
struct PutColumns {
  const GradientPlace& place;
  int64_t m, width, first;
  void announce(int64_t n) const { place.announce(m, first + n, width, kTileColumns); }
  void operator()(int64_t n, const float* tile) const {
    alignas(64) std::array<float, static_cast<size_t>(kGradientColumns * kTileColumns)> turned;
    for (int64_t j = 0; j < width; j += kLanes<float>) {
      for (int64_t i = 0; i < kTileColumns; i += kLanes<float>) {
        transpose_square<float>(tile + i * kGradientColumns + j, kGradientColumns, turned.data() + j * kTileColumns + i, kTileColumns);
      }
    }
    place.put(m, first + n, width, kTileColumns, turned.data(), kTileColumns);
  }
};

struct SparseGradient {
  int64_t m_count, n_count;
  Leaves leaves;
  const GemmA<float>& a;
  const GemmB<float>& b;
  GradientPlace place;
  int64_t k_count = leaves.ends[leaves.count - 1];

  // Whose turned columns the second-level cache holds.
  int64_t columns_at_once() const { return std::max(kTileColumns, kSparseElements / k_count / kTileColumns * kTileColumns); }
  // Rows of C, which columns of A become.
  void turn_a(Range rows, Crew* crew) const {
    Crew::share_prepared(crew, n_count, kGradientColumns, kGradientColumns, [&] {
      return [this, rows, turned = TurnedColumns(a.data, a.column_stride, a.common.value, rows.begin, rows.size(), leaves)](Range columns) {
        float* const panel = scratch<float>(Scratch::Panel, (k_count + leaves.count) * kGradientColumns);
        float* const sums = a.common.value == 0 ? nullptr : panel + k_count * kGradientColumns;
        for (int64_t n = columns.begin; n < columns.end; n += kGradientColumns) {
          const int64_t width = std::min(kGradientColumns, columns.end - n);
          pack_sparse_panel<kGradientColumns>(b, n, width, k_count, panel);
          if (sums != nullptr) begin_leaves(panel, sums);
          for_sparse_tiles(turned, rows.size(), leaves, {panel, sums}, width, PutRows{place, rows.begin, n, width});
        }
      };
    });
  }
  void turn_b(Crew* crew) const {
    Crew::share_prepared(crew, n_count, kGradientColumns, kGradientColumns, [&] {
      // One after the other, the last may be narrower.
      float* const panels = scratch<float>(Scratch::Panel, k_count * (m_count + kGradientColumns));
      for (int64_t m = 0; m < m_count; m += kGradientColumns) {
        pack_sparse_panel<kGradientColumns>({a.data, a.column_stride, a.row_stride}, m, std::min(kGradientColumns, m_count - m), k_count, panels + m * k_count);
      }
      return [this, panels](Range columns) {
        for (int64_t n = columns.begin; n < columns.end; n += columns_at_once()) {
          const int64_t count = std::min(columns_at_once(), columns.end - n);
          const TurnedColumns turned(b.data, b.row_stride, 0, n, count, leaves);
          for (int64_t m = 0; m < m_count; m += kGradientColumns) {
            const int64_t width = std::min(kGradientColumns, m_count - m);
            for_sparse_tiles(turned, count, leaves, {panels + m * k_count}, width, PutColumns{place, m, width, n});
          }
        }
      };
    });
  }

 private:
  void begin_leaves(const float* panel, float* sums) const {
    int64_t k = 0;
    for (int leaf = 0; leaf < leaves.count; k = leaves.ends[leaf++]) {
      begin_sums<kGradientColumns>(a.common.value, panel + k * kGradientColumns, leaves.ends[leaf] - k, sums + leaf * kGradientColumns);
    }
  }
};

inline void sparse_gemm_tree(Sparse sparse, int64_t m_count, int64_t n_count, Leaves leaves, const GemmA<float>& a, const GemmB<float>& b, float* c,
                             int64_t ldc, bool add, Crew* crew, GradientTaker<float>* taker) {
  const SparseGradient gradient{m_count, n_count, leaves, a, b, {c, ldc, add, taker}};
  if (sparse == Sparse::B) return gradient.turn_b(crew);
  const auto blocks = [&](Range rows, Crew* together) {
    const int64_t at_once = gradient.columns_at_once();
    for (int64_t m = rows.begin; m < rows.end; m += at_once) gradient.turn_a({m, std::min(m + at_once, rows.end)}, together);
  };
  if (is_for_all_hands<kGradientColumns>(n_count, crew)) return blocks({0, m_count}, crew);
  const int64_t of_hand = (m_count / crew->hands() + kTileColumns) / kTileColumns * kTileColumns;
  Crew::share(crew, m_count, of_hand, 1, [&](Range rows) { blocks(rows, nullptr); });
}

}  // namespace dtrain::engine::DTRAIN_ISA
