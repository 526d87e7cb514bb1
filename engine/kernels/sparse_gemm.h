// Products of matrices that have many zeros, as what has gone through a ReLU has (GemmA::has_zeros): these are left out. Every
// element is the sum that gemm_kernel.h makes, in the same order, without the products that are zero: it has the same
// bits, but that a zero is never negative. Nobody sees that: what is added to something else has the same bits for either
// zero, and what optimisers keep begins with positive ones. So who shares a batch may choose by what is their own of it.
//
// A row of A is a list of what is not zero (nonzero_lists.h); it goes over a panel of B that lies in the first-level cache.
// With half of A zero that takes three quarters of the time, with three quarters of it less than half; with less than
// a third of it zero it takes longer.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <type_traits>

#include "engine/gradient_taker.h"
#include "engine/kernels/crew.h"
#include "engine/kernels/gemm_tile.h"
#include "engine/kernels/nonzero_lists.h"
#include "engine/kernels/pack.h"

namespace dtrain::engine::DTRAIN_ISA {

// Of a panel: four sums are on their way at once, as many as it takes to wait for none.
inline constexpr int kListVectors = 4;
inline constexpr int64_t kListColumns = kListVectors * kLanes<float>;
// Rows of a panel that stay in the first-level cache while all lists go over them.
inline constexpr int64_t kListRows = 128;
// What is listed at the most: more would push everything else out of the second-level cache.
inline constexpr int64_t kListedMost = int64_t{1} << 19;
inline constexpr int64_t kListRowBytes = kListColumns * static_cast<int64_t>(sizeof(float));

// `acc` += what the list says of a panel.
template <int C>
DTRAIN_INLINE void add_listed(const NonzeroList& list, const float* panel, Vector<float> (&acc)[1][C]) {
  const char* const from = reinterpret_cast<const char*>(panel);
  for (int64_t i = list.begin; i < list.end; ++i) {
    const Vector<float> each = splat(list.values[i]);
    const auto* const row = reinterpret_cast<const float*>(from + list.places[i]);
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) acc[0][c] += each * load(row + c * kLanes<float>);
  }
}

// `width` columns of B from n on, as lists go over them.
inline void pack_list_panel(const GemmB<float>& b, int64_t n, int64_t width, int64_t k_count, float* to) {
  if (b.column_stride == 1 && width == kListColumns) return pack_panels<float, kListColumns>(b, n, 1, k_count, to, 0);
  pack_panel(b, n, width, k_count, to, kListColumns);
}

// body(std::integral_constant<int, C>()), of C vectors that are `width` elements.
template <class Body>
DTRAIN_INLINE void for_width(int64_t width, const Body& body) {
  switch (width / kLanes<float>) {
    case 1: return body(std::integral_constant<int, 1>());
    case 2: return body(std::integral_constant<int, 2>());
    case 3: return body(std::integral_constant<int, 3>());
    default: return body(std::integral_constant<int, kListVectors>());
  }
}

// Whether each hand has columns enough.
inline bool is_for_all_hands(int64_t n_count, const Crew* crew) { return crew == nullptr || n_count >= kListColumns * crew->hands(); }

// Large enough that making lists and panels is little beside it.
inline bool is_sparse_product(int64_t m_count, int64_t n_count, int64_t k_count, const GemmA<float>& a, const Then<float>& then, const Crew* crew) {
  const bool is_large = m_count >= 48 && n_count >= 128 && k_count >= 128 && m_count * k_count <= kListedMost;
  const bool is_whole = a.column_stride == 1 && n_count % kLanes<float> == 0;
  return a.has_zeros && is_large && is_whole && is_for_all_hands(n_count, crew) && then.gelu_slope == nullptr && then.plus == nullptr;
}

inline void sparse_gemm_then(int64_t m_count, int64_t n_count, int64_t k_count, const GemmA<float>& a, const GemmB<float>& b, float* c,
                             int64_t ldc, const Then<float>& then, Crew* crew) {
  const int64_t pieces = (k_count + kListRows - 1) / kListRows;
  Crew::share_prepared(crew, n_count, kListColumns, kListColumns, [&] {
    return [&, lists = RowLists(a, m_count, k_count, kListRows, kListRowBytes)](Range columns) {
      float* const panel = scratch<float>(Scratch::Panel, k_count * kListColumns);
      for (int64_t n = columns.begin; n < columns.end; n += kListColumns) {
        const int64_t width = std::min(kListColumns, columns.end - n);
        pack_list_panel(b, n, width, k_count, panel);
        for_width(width, [&](auto vectors) {
          constexpr int kCount = vectors;
          for (int64_t piece = 0; piece < pieces; ++piece) {
            for (int64_t m = 0; m < m_count; ++m) {
              const int64_t at = m * ldc + n;
              Vector<float> acc[1][kCount] = {};
              if (piece > 0) {
#pragma GCC unroll 4
                for (int v = 0; v < kCount; ++v) acc[0][v] = load(c + at + v * kLanes<float>);
              }
              add_listed(lists.list(m, piece), panel, acc);
              if (piece + 1 == pieces) {
                const auto place = [at](const float* matrix) { return matrix == nullptr ? nullptr : matrix + at; };
                end_tile<float>({.bias = then.bias == nullptr ? nullptr : then.bias + n,
                                 .relu = then.relu,
                                 .times = place(then.times),
                                 .where = place(then.where)},
                                ldc, acc);
              }
              store_rows<float>(acc, c + at, ldc);
            }
          }
        });
      }
    };
  });
}

// ---- gradients: K is the rows of a batch, cut into leaves

// Rows of a product are put down together: as many as a square has.
inline constexpr int64_t kListedTogether = kLanes<float>;

// `acc` = the product of a column's lists and a panel: the balanced tree over kLeaves of them.
template <int kLeaves, int C>
DTRAIN_INLINE void sum_listed(const ColumnLists::Column& lists, int64_t first, const float* panel, Vector<float> (&acc)[1][C]) {
  if constexpr (kLeaves == 1) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) acc[0][c] = Vector<float>{};
    add_listed(lists.leaf(first), panel, acc);
  } else {
    Vector<float> right[1][C];
    sum_listed<kLeaves / 2>(lists, first, panel, acc);
    sum_listed<kLeaves / 2>(lists, first + kLeaves / 2, panel, right);
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) acc[0][c] += right[0][c];
  }
}
inline constexpr int kMostListedLeaves = 8;   // so many are summed in registers

inline bool is_sparse_gradient(int64_t m_count, int64_t n_count, Leaves leaves, const GemmA<float>& a, const GemmB<float>& b, const Crew* crew) {
  constexpr int64_t kShortLeaf = 8;    // rows: of fewer, ending a list takes longer than what it says
  constexpr int64_t kLongLeaf = 160;   // of more, a panel does not stay in the first-level cache
  const bool is_large = m_count >= 128 && n_count >= 128;
  const bool is_whole = a.row_stride == 1 && b.column_stride == 1 && m_count % kLanes<float> == 0 && n_count % kLanes<float> == 0;
  const bool leaves_fit = leaves.count <= kMostListedLeaves && (leaves.shortest == 0 || leaves.shortest >= kShortLeaf) &&
                          leaves.ends[leaves.count - 1] <= std::min(kLongLeaf * leaves.count, kListedMost / m_count);
  return (a.has_zeros || b.has_zeros) && is_large && is_whole && leaves_fit && is_for_all_hands(n_count, crew);
}

// So many leaves at once that their rows of a panel stay in the first-level cache.
inline int leaves_at_once(Leaves leaves) {
  int some = leaves.count;
  while (some > 1 && leaves.ends[leaves.count - 1] > kListRows * (leaves.count / some)) some /= 2;
  return some;
}

// put(i, tile) of each kListedTogether columns of the lists from i on, times a panel: of the tile's rows of kListColumns the
// first `width` are the product. put.announce(i) comes before.
template <class Put>
void for_listed_tiles(const ColumnLists& lists, int64_t columns, Leaves leaves, const float* panel, int64_t width, const Put& put) {
  constexpr int64_t kTile = kListedTogether * kListColumns;
  const int some = leaves_at_once(leaves);
  // Sums of the leaves that came before, of all tiles: left siblings, the largest first.
  float* const waiting = scratch<float>(Scratch::Sums, some == leaves.count ? 0 : kTreeLevels * columns * kListColumns);
  const auto multiply = [&](auto count, auto vectors) {
    alignas(64) std::array<float, static_cast<size_t>(kTile)> tile;
    int depth = 0;
    for (int first = 0; first < leaves.count; first += count) {
      const bool is_last = first + count == leaves.count;
      const int siblings = std::countr_one(static_cast<unsigned>(first / count));
      depth -= siblings;
      for (int64_t i = 0; i < columns; i += kListedTogether) {
        if (is_last) put.announce(i);
        for (int64_t r = 0; r < kListedTogether; ++r) {
          Vector<float> acc[1][vectors];
          sum_listed<count>(lists.column(i + r), first, panel, acc);
          const auto place = [&](int level) { return waiting + (level * columns + i + r) * kListColumns; };
          for (int level = siblings; level-- > 0;) add_rows<float>(place(depth + level), 0, acc);
          store_rows<float>(acc, is_last ? tile.data() + r * kListColumns : place(depth), 0);
        }
        if (is_last) put(i, tile.data());
      }
      ++depth;
    }
  };
  const auto of_width = [&](auto count) {
    for_width(width, [&](auto vectors) { multiply(count, vectors); });
  };
  switch (some) {
    case 1: return of_width(std::integral_constant<int, 1>());
    case 2: return of_width(std::integral_constant<int, 2>());
    case 4: return of_width(std::integral_constant<int, 4>());
    default: return of_width(std::integral_constant<int, kMostListedLeaves>());
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

// A's columns are listed, and go over panels of B.
struct PutRows {
  const GradientPlace& place;
  int64_t n, width;
  void announce(int64_t m) const { place.announce(m, n, kListedTogether, width); }
  void operator()(int64_t m, const float* tile) const { place.put(m, n, kListedTogether, width, tile, kListColumns); }
};
// B's columns are, from `first` on, and go over panels of A: tiles are of C transposed.
struct PutColumns {
  const GradientPlace& place;
  int64_t m, width, first;
  void announce(int64_t n) const { place.announce(m, first + n, width, kListedTogether); }
  void operator()(int64_t n, const float* tile) const {
    alignas(64) std::array<float, static_cast<size_t>(kListColumns * kListedTogether)> turned;
    for (int64_t j = 0; j < width; j += kLanes<float>) {
      transpose_square<float>(tile + j, kListColumns, turned.data() + j * kListedTogether, kListedTogether);
    }
    place.put(m, first + n, width, kListedTogether, turned.data(), kListedTogether);
  }
};

inline void sparse_gemm_tree(int64_t m_count, int64_t n_count, Leaves leaves, const GemmA<float>& a, const GemmB<float>& b, float* c, int64_t ldc,
                             bool add, Crew* crew, GradientTaker<float>* taker) {
  const int64_t k_count = leaves.ends[leaves.count - 1];
  const GradientPlace place{c, ldc, add, taker};
  if (a.has_zeros) {
    return Crew::share_prepared(crew, n_count, kListColumns, kListColumns, [&] {
      return [&, lists = ColumnLists(a.data, a.column_stride, 0, m_count, leaves, kListRowBytes)](Range columns) {
        float* const panel = scratch<float>(Scratch::Panel, k_count * kListColumns);
        for (int64_t n = columns.begin; n < columns.end; n += kListColumns) {
          const int64_t width = std::min(kListColumns, columns.end - n);
          pack_list_panel(b, n, width, k_count, panel);
          for_listed_tiles(lists, m_count, leaves, panel, width, PutRows{place, n, width});
        }
      };
    });
  }
  Crew::share_prepared(crew, n_count, kListColumns, kListColumns, [&] {
    // One after the other, the last may be narrower.
    float* const panels = scratch<float>(Scratch::Panel, k_count * (m_count + kListColumns));
    for (int64_t m = 0; m < m_count; m += kListColumns) {
      pack_list_panel({a.data, a.column_stride, a.row_stride}, m, std::min(kListColumns, m_count - m), k_count, panels + m * k_count);
    }
    return [&, panels](Range columns) {
      const ColumnLists lists(b.data, b.row_stride, columns.begin, columns.size(), leaves, kListRowBytes);
      for (int64_t m = 0; m < m_count; m += kListColumns) {
        const int64_t width = std::min(kListColumns, m_count - m);
        for_listed_tiles(lists, columns.size(), leaves, panels + m * k_count, width, PutColumns{place, m, width, columns.begin});
      }
    };
  });
}

}  // namespace dtrain::engine::DTRAIN_ISA
