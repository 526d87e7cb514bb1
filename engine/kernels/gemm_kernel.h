// Matrix products. Every element of a product is the sum over k in the order of k, the first multiplied and
// by one multiply-add each other, wherever in the matrix it lies: so a row of the result has the same bits
// whatever the other rows are, and a batch may be cut anywhere.
//
// Tiles (gemm_tile.h) go over the panels of a product that is cut up (gemm_cut.h). What follows a product (a bias, an
// activation) happens to a tile while it is in the cache.
#pragma once

#include <algorithm>

#include "engine/gradient_taker.h"
#include "engine/kernels/activations.h"
#include "engine/kernels/crew.h"
#include "engine/kernels/gemm_cut.h"
#include "engine/kernels/trial.h"
#if DTRAIN_VECTOR_BYTES >= 32
#include "engine/kernels/sparse_gemm.h"
#include "engine/kernels/sparse_gradient.h"
#endif

namespace dtrain::engine::DTRAIN_ISA {

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
  Crew::share_prepared(crew, n_count, kColumns<T>, Crew::kColumns, [&] {
    return [&body, cut = Cut<T>(m_count, n_count, k_count, a, b)](Range columns) mutable { cut.run(columns, body); };
  });
}

template <class T>
void dense_gemm_then(int64_t m_count, int64_t n_count, int64_t k_count, const GemmA<T>& a, const GemmB<T>& b, T* c,
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
      copy_tile(tile.data(), kColumns<T>, rows, panel.width, plus, c + at, ldc);
      if (then.bias != nullptr || then.relu || times != nullptr || where != nullptr) end_narrow_tile(then, at, n, rows, panel.width, c, ldc);
    }
    if (then.gelu_slope != nullptr) gelu_tile(rows, panel.width, c + at, then.gelu_slope + at, ldc);
  };
  for_tiles<T>(m_count, n_count, k_count, a, b, crew, finish_tile);
}

template <class T>
void gemm_then(int64_t m_count, int64_t n_count, int64_t k_count, GemmA<T> a, GemmB<T> b, T* c,
               int64_t ldc, const Then<T>& then, Crew* crew) {
#if DTRAIN_VECTOR_BYTES >= 32
  if constexpr (std::is_same_v<T, float>) {
    if (can_leave_out(m_count, n_count, k_count, a, then)) {
      const auto sparse = [&] { sparse_gemm_then(m_count, n_count, k_count, a, b, c, ldc, then, crew); };
      if (a.common.value != 0 || a.trial == nullptr) return sparse();
      return a.trial->run(2, m_count * n_count * k_count, [&](int way) {
        if (way == 1) return sparse();
        dense_gemm_then<T>(m_count, n_count, k_count, a, b, c, ldc, then, crew);
      });
    }
  }
#endif
  dense_gemm_then<T>(m_count, n_count, k_count, a, b, c, ldc, then, crew);
}

template <class T>
void gemm(int64_t m_count, int64_t n_count, int64_t k_count, GemmA<T> a, GemmB<T> b, T* c,
          int64_t ldc, bool add, Crew* crew = nullptr) {
  gemm_then<T>(m_count, n_count, k_count, a, b, c, ldc, {.plus = add ? c : nullptr}, crew);
}

// The same, k cut at the ends of leaves, whose products are summed by the balanced tree.
template <class T>
void dense_gemm_tree(int64_t m_count, int64_t n_count, Leaves leaves, const GemmA<T>& a, const GemmB<T>& b, T* c,
                     int64_t ldc, bool add, Crew* crew, GradientTaker<T>* taker) {
  if (leaves.count == 1 && taker == nullptr) {
    return dense_gemm_then<T>(m_count, n_count, leaves.ends[0], a, b, c, ldc, {.plus = add ? c : nullptr}, crew);
  }
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
      copy_tile(tile.data(), kColumns<T>, rows, panel.width, add ? to : nullptr, to, ldc);
    }
  };
  for_tiles<T>(m_count, n_count, leaves.ends[leaves.count - 1], a, b, crew, sum_tile);
}

template <class T>
void gemm_tree(int64_t m_count, int64_t n_count, Leaves leaves, GemmA<T> a, GemmB<T> b, T* c,
               int64_t ldc, bool add, Crew* crew, GradientTaker<T>* taker) {
#if DTRAIN_VECTOR_BYTES >= 32
  if constexpr (std::is_same_v<T, float>) {
    const GradientWays found = gradient_ways(m_count, n_count, leaves, a, b);
    const auto compute = [&](int way) {
      const Sparse sparse = found.ways[static_cast<size_t>(way)];
      if (sparse != Sparse::Neither) return sparse_gemm_tree(sparse, m_count, n_count, leaves, a, b, c, ldc, add, crew, taker);
      dense_gemm_tree<T>(m_count, n_count, leaves, a, b, c, ldc, add, crew, taker);
    };
    if (found.count == 1 || a.trial == nullptr) return compute(found.count - 1);
    return a.trial->run(found.count, m_count * n_count * leaves.ends[leaves.count - 1], compute);
  }
#endif
  dense_gemm_tree<T>(m_count, n_count, leaves, a, b, c, ldc, add, crew, taker);
}

}  // namespace dtrain::engine::DTRAIN_ISA
