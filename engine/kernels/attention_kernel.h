// Causal self-attention, a sample and head at a time, so that scores stay in the cache: for a block of
// query rows, scores against all keys up to the block's end. What backward needs of the softmax is one
// number a row; the scores themselves are computed again.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "engine/kernels/gemm_kernel.h"

namespace dtrain::engine::DTRAIN_ISA {

inline constexpr int64_t kQueryRows = 32;

// One head of one sample: rows of q, k and v lie `stride` apart.
template <class T>
struct Head {
  const T *q, *k, *v;
  int64_t stride, context, width;
  T scale;

  GemmA<T> queries(int64_t row) const { return {q + row * stride, stride, 1}; }
  GemmB<T> keys_transposed() const { return {k, 1, stride}; }
};

template <class T>
Head<T> head_of(const AttentionShape& shape, const T* qkv, int64_t sample, int64_t head) {
  const int64_t width = shape.width / shape.heads;
  const T* first = qkv + sample * shape.context * 3 * shape.width + head * width;
  return {first,  first + shape.width, first + 2 * shape.width, 3 * shape.width, shape.context,
          width,  T(1) / std::sqrt(T(width))};
}

// Rows of scores are as wide as whole vectors; what no key is at counts for nothing.
template <class T>
int64_t score_width(int64_t columns) {
  return (columns + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
}

// Lanes from `count` on become so small that their exponential is zero.
template <class T>
DTRAIN_INLINE Vector<T> first_lanes(Vector<T> x, int64_t count) {
  Bits<T> lane;
  for (int i = 0; i < kLanes<T>; ++i) lane[i] = i;
  return lane < static_cast<std::remove_reference_t<decltype(lane[0])>>(count) ? x : splat(T(-1e30));
}

// value(i) -> what becomes of the scores of columns [i, i + kLanes), for all that a row sees; zero beyond.
template <class T, class Value>
DTRAIN_INLINE void for_seen(int64_t seen, int64_t width, T* p, Value value) {
  int64_t i = 0;
  for (; i + kLanes<T> <= seen; i += kLanes<T>) store(p + i, value(load(p + i)));
  if (i < seen) {
    store(p + i, value(first_lanes<T>(load(p + i), seen - i)));
    i += kLanes<T>;
  }
  for (; i < width; i += kLanes<T>) store(p + i, Vector<T>{});
}

// Row r of `p` holds scores; becomes exp(scale score - log_sum[r]) up to the diagonal, zero beyond.
template <class T>
void weigh(int64_t first, int64_t rows, int64_t width, T scale, const T* log_sums, T* p) {
  for (int64_t r = 0; r < rows; ++r, p += width) {
    const T log_sum = log_sums[r];
    for_seen<T>(first + r + 1, width, p, [&](Vector<T> x) { return exp(x * scale - log_sum); });
  }
}

// The same but for a factor, which follows: each row's largest weight is 1.
template <class T>
void weigh_and_sum(int64_t first, int64_t rows, int64_t width, T scale, T* p, T* factors, T* log_sums) {
  for (int64_t r = 0; r < rows; ++r, p += width) {
    const int64_t seen = first + r + 1;
    Vector<T> largest = first_lanes<T>(load(p), seen);
    for (int64_t i = kLanes<T>; i < seen; i += kLanes<T>) {
      largest = larger(largest, i + kLanes<T> <= seen ? load(p + i) : first_lanes<T>(load(p + i), seen - i));
    }
    const T most = max_lanes<T>(largest) * scale;
    Vector<T> sums{};
    for_seen<T>(seen, width, p, [&](Vector<T> x) {
      const Vector<T> weight = exp(x * scale - most);
      sums += weight;
      return weight;
    });
    const T sum = sum_lanes<T>(sums);
    factors[r] = T(1) / sum;
    log_sums[r] = most + std::log(sum);
  }
}

template <class T>
void attention(const AttentionShape& shape, int64_t samples, const T* qkv, T* out, T* log_sums) {
  T* const p = scratch<T>(Scratch::Attention, kQueryRows * score_width<T>(shape.context));
  T factors[kQueryRows];
  for (int64_t sample = 0; sample < samples; ++sample) {
    for (int64_t h = 0; h < shape.heads; ++h, log_sums += shape.context) {
      const Head<T> head = head_of(shape, qkv, sample, h);
      T* to = out + sample * shape.context * shape.width + h * head.width;
      for (int64_t first = 0; first < shape.context; first += kQueryRows) {
        const int64_t rows = std::min(kQueryRows, shape.context - first);
        const int64_t columns = first + rows, width = score_width<T>(columns);
        gemm(rows, columns, head.width, head.queries(first), head.keys_transposed(), p, width, false);
        weigh_and_sum(first, rows, width, head.scale, p, factors, log_sums + first);
        gemm(rows, head.width, columns, GemmA<T>{p, width, 1}, GemmB<T>{head.v, head.stride, 1},
             to + first * shape.width, shape.width, false);
        for (int64_t r = 0; r < rows; ++r) {
          T* const row = to + (first + r) * shape.width;
          const T factor = factors[r];
          for_vectors<T>(head.width, [&](auto load_at, auto store_at) { store_at(row, load_at(row) * factor); });
        }
      }
    }
  }
}

template <class T>
void attention_backward(const AttentionShape& shape, int64_t samples, const T* qkv,
                        const T* log_sums, const T* dout, T* dqkv) {
  T* const p = scratch<T>(Scratch::Attention, 2 * kQueryRows * score_width<T>(shape.context));
  T* const dp = p + kQueryRows * score_width<T>(shape.context);
  for (int64_t sample = 0; sample < samples; ++sample) {
    for (int64_t h = 0; h < shape.heads; ++h, log_sums += shape.context) {
      const Head<T> head = head_of(shape, qkv, sample, h);
      T* dq = dqkv + (head.q - qkv);
      T* dk = dq + shape.width;
      T* dv = dk + shape.width;
      const T* from = dout + sample * shape.context * shape.width + h * head.width;
      // From the last block to the first: it is the one that reaches all keys and may store.
      const int64_t blocks = (shape.context + kQueryRows - 1) / kQueryRows;
      for (int64_t block = blocks - 1; block >= 0; --block) {
        const int64_t first = block * kQueryRows;
        const int64_t rows = std::min(kQueryRows, shape.context - first);
        const int64_t columns = first + rows, width = score_width<T>(columns);
        const bool add = block + 1 < blocks;
        const T* d = from + first * shape.width;
        gemm(rows, columns, head.width, head.queries(first), head.keys_transposed(), p, width, false);
        weigh(first, rows, width, head.scale, log_sums + first, p);
        gemm(columns, head.width, rows, GemmA<T>{p, 1, width}, GemmB<T>{d, shape.width, 1}, dv,
             head.stride, add);
        gemm(rows, columns, head.width, GemmA<T>{d, shape.width, 1}, GemmB<T>{head.v, 1, head.stride},
             dp, width, false);
        for (int64_t r = 0; r < rows; ++r) {
          T* const dp_row = dp + r * width;
          const T* const p_row = p + r * width;
          std::fill(dp_row + columns, dp_row + width, T(0));
          const int64_t seen = score_width<T>(first + r + 1);  // beyond it p is zero
          Vector<T> products{};
          for (int64_t i = 0; i < seen; i += kLanes<T>) products += load(dp_row + i) * load(p_row + i);
          const T product = sum_lanes<T>(products);
          for (int64_t i = 0; i < seen; i += kLanes<T>) {
            store(dp_row + i, load(p_row + i) * (load(dp_row + i) - product) * head.scale);
          }
          std::fill(dp_row + seen, dp_row + width, T(0));
        }
        gemm(rows, head.width, columns, GemmA<T>{dp, width, 1}, GemmB<T>{head.k, head.stride, 1},
             dq + first * head.stride, head.stride, false);
        gemm(columns, head.width, rows, GemmA<T>{dp, 1, width},
             GemmB<T>{head.q + first * head.stride, head.stride, 1}, dk, head.stride, add);
      }
    }
  }
}

}  // namespace dtrain::engine::DTRAIN_ISA
