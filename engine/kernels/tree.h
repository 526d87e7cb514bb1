// The balanced tree over the leaves of a batch (kernels.h), for sums of a vector at a time, or of rows.
#pragma once

#include <algorithm>

#include "engine/kernels/kernels.h"
#include "engine/kernels/scratch.h"
#include "engine/kernels/vector.h"

namespace dtrain::engine::DTRAIN_ISA {

// leaf_sum(begin, end) -> Vector<T>: the sum over rows [begin, end), in their order.
template <class T, class LeafSum>
DTRAIN_INLINE Vector<T> tree_sum(Leaves leaves, LeafSum leaf_sum) {
  Vector<T> waiting[kTreeLevels];
  int depth = 0;
  int64_t begin = 0;
  for (int leaf = 0; leaf < leaves.count; ++leaf) {
    Vector<T> sum = leaf_sum(begin, leaves.ends[leaf]);
    begin = leaves.ends[leaf];
    for (int rest = leaf; rest & 1; rest >>= 1) sum += waiting[--depth];
    waiting[depth++] = sum;
  }
  return waiting[0];
}

// out[0, n) (+)= the tree's sum of row_value(row, column_load) over all rows, a vector of columns at a
// time: column_load(p) is that part of p[0, n).
template <class T, class RowValue>
DTRAIN_INLINE void tree_sum_columns(int64_t n, Leaves leaves, T* out, bool add, RowValue row_value) {
  for_vectors<T>(n, [&](auto load_at, auto store_at) {
    Vector<T> sum = tree_sum<T>(leaves, [&](int64_t begin, int64_t end) {
      Vector<T> leaf{};
      for (int64_t row = begin; row < end; ++row) leaf += row_value(row, load_at);
      return leaf;
    });
    if (add) sum += load_at(out);
    store_at(out, sum);
  });
}

// The same with rows as a whole, as they lie: add_row(row, sums) adds to sums[0, n). Where the sum is, until
// the next call.
template <class T, class AddRow>
DTRAIN_INLINE const T* tree_sum_rows(int64_t n, Leaves leaves, AddRow add_row) {
  T* const waiting = scratch<T>(Scratch::Sums, kTreeLevels * n);
  T* sums = waiting;
  int64_t row = 0;
  for (int leaf = 0; leaf < leaves.count; ++leaf, sums += n) {
    std::fill_n(sums, n, T(0));
    for (; row < leaves.ends[leaf]; ++row) add_row(row, sums);
    for (int rest = leaf; rest & 1; rest >>= 1) {
      sums -= n;
      for_vectors<T>(n, [&](auto load_at, auto store_at) { store_at(sums, load_at(sums + n) + load_at(sums)); });
    }
  }
  return waiting;
}

template <class T>
void put_sums(int64_t n, const T* sums, T* out, bool add) {
  for_vectors<T>(n, [&](auto load_at, auto store_at) {
    store_at(out, add ? load_at(sums) + load_at(out) : load_at(sums));
  });
}

}  // namespace dtrain::engine::DTRAIN_ISA
