// Causal self-attention, a sample and head at a time, so that scores stay in the cache: for a block of
// query rows, scores against all keys up to the block's end. What backward needs of the softmax is one
// number a row; the scores themselves are computed again.
#pragma once

#include <algorithm>
#include <cmath>

#include "engine/kernels/gemm_kernel.h"

namespace dtrain::engine::DTRAIN_ISA {

inline constexpr int64_t kQueryRows = 64;

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

// Row i of `p` holds scores; becomes exp(scale score - log_sum[i]) up to the diagonal, zero beyond.
template <class T>
void weigh(int64_t first, int64_t rows, int64_t columns, T scale, const T* log_sums, T* p) {
  for (int64_t r = 0; r < rows; ++r, p += columns) {
    const T log_sum = log_sums[r];
    const int64_t seen = first + r + 1;
    for_vectors<T>(seen, [&](auto load_at, auto store_at) {
      store_at(p, exp(load_at(p) * scale - log_sum));
    });
    std::fill(p + seen, p + columns, T(0));
  }
}

// log(sum of exp(scale score)) of each row, up to the diagonal.
template <class T>
void sum_weights(int64_t first, int64_t rows, int64_t columns, T scale, const T* p, T* log_sums) {
  for (int64_t r = 0; r < rows; ++r, p += columns) {
    const int64_t seen = first + r + 1;
    T most = p[0];
    int64_t i = 0;
    if (seen >= kLanes<T>) {
      Vector<T> largest = load(p);
      for (i = kLanes<T>; i + kLanes<T> <= seen; i += kLanes<T>) largest = larger(largest, load(p + i));
      most = max_lanes<T>(largest);
    }
    for (; i < seen; ++i) most = p[i] > most ? p[i] : most;
    most *= scale;
    Vector<T> sums{};
    i = 0;
    for (; i + kLanes<T> <= seen; i += kLanes<T>) sums += exp(load(p + i) * scale - most);
    T sum = sum_lanes<T>(sums);
    if (i < seen) {
      const Vector<T> rest = exp(load_some(p + i, seen - i) * scale - most);
      for (int64_t j = 0; j < seen - i; ++j) sum += rest[j];
    }
    log_sums[r] = most + std::log(sum);
  }
}

template <class T>
void attention(const AttentionShape& shape, int64_t samples, const T* qkv, T* out, T* log_sums) {
  T* p = scratch<T>(Scratch::Attention, kQueryRows * shape.context);
  for (int64_t sample = 0; sample < samples; ++sample) {
    for (int64_t h = 0; h < shape.heads; ++h, log_sums += shape.context) {
      const Head<T> head = head_of(shape, qkv, sample, h);
      T* to = out + sample * shape.context * shape.width + h * head.width;
      for (int64_t first = 0; first < shape.context; first += kQueryRows) {
        const int64_t rows = std::min(kQueryRows, shape.context - first);
        const int64_t columns = first + rows;
        gemm(rows, columns, head.width, head.queries(first), head.keys_transposed(), p, columns, false);
        sum_weights(first, rows, columns, head.scale, p, log_sums + first);
        weigh(first, rows, columns, head.scale, log_sums + first, p);
        gemm(rows, head.width, columns, GemmA<T>{p, columns, 1}, GemmB<T>{head.v, head.stride, 1},
             to + first * shape.width, shape.width, false);
      }
    }
  }
}

template <class T>
void attention_backward(const AttentionShape& shape, int64_t samples, const T* qkv,
                        const T* log_sums, const T* dout, T* dqkv) {
  T* p = scratch<T>(Scratch::Attention, 2 * kQueryRows * shape.context);
  T* dp = p + kQueryRows * shape.context;
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
        const int64_t columns = first + rows;
        const bool add = block + 1 < blocks;
        const T* d = from + first * shape.width;
        gemm(rows, columns, head.width, head.queries(first), head.keys_transposed(), p, columns, false);
        weigh(first, rows, columns, head.scale, log_sums + first, p);
        gemm(columns, head.width, rows, GemmA<T>{p, 1, columns}, GemmB<T>{d, shape.width, 1}, dv,
             head.stride, add);
        gemm(rows, columns, head.width, GemmA<T>{d, shape.width, 1}, GemmB<T>{head.v, 1, head.stride},
             dp, columns, false);
        for (int64_t r = 0; r < rows; ++r) {
          T* dp_row = dp + r * columns;
          const T* p_row = p + r * columns;
          Vector<T> products{};
          for_vectors<T>(columns, [&](auto load_at, auto) { products += load_at(dp_row) * load_at(p_row); });
          const T product = sum_lanes<T>(products);
          for_vectors<T>(columns, [&](auto load_at, auto store_at) {
            store_at(dp_row, load_at(p_row) * (load_at(dp_row) - product) * head.scale);
          });
        }
        gemm(rows, head.width, columns, GemmA<T>{dp, columns, 1}, GemmB<T>{head.k, head.stride, 1},
             dq + first * head.stride, head.stride, false);
        gemm(columns, head.width, rows, GemmA<T>{dp, 1, columns},
             GemmB<T>{head.q + first * head.stride, head.stride, 1}, dk, head.stride, add);
      }
    }
  }
}

}  // namespace dtrain::engine::DTRAIN_ISA
