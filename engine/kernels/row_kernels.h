// Operations on rows: biases, activations, normalisation, the loss, embeddings.
#pragma once

#include <cmath>

#include "engine/kernels/kernels.h"
#include "engine/kernels/tree.h"
#include "engine/kernels/vector.h"

namespace dtrain::engine::DTRAIN_ISA {

template <class T>
void add_bias(int64_t rows, int64_t n, const T* bias, T* x) {
  for (int64_t row = 0; row < rows; ++row, x += n) {
    for_vectors<T>(n, [&](auto load_at, auto store_at) { store_at(x, load_at(x) + load_at(bias)); });
  }
}

template <class T>
void add_bias_relu(int64_t rows, int64_t n, const T* bias, T* x) {
  for (int64_t row = 0; row < rows; ++row, x += n) {
    for_vectors<T>(n, [&](auto load_at, auto store_at) {
      store_at(x, relu(load_at(x) + load_at(bias)));
    });
  }
}

template <class T>
void relu_backward(int64_t count, const T* y, T* dy) {
  for_vectors<T>(count, [&](auto load_at, auto store_at) {
    store_at(dy, load_at(y) > Vector<T>{} ? load_at(dy) : Vector<T>{});
  });
}

template <class From, class T>
void standardise(int64_t count, const From* values, T mean, T factor, T* x) {
  for (int64_t i = 0; i < count; ++i) x[i] = (static_cast<T>(values[i]) - mean) * factor;
}

template <class T>
void add_to(int64_t count, const T* x, T* y) {
  for_vectors<T>(count, [&](auto load_at, auto store_at) { store_at(y, load_at(y) + load_at(x)); });
}

template <class T>
void sum_rows(int64_t n, int64_t ld, Leaves leaves, const T* x, T* out, bool add) {
  const T* const sums = tree_sum_rows<T>(n, leaves, [&](int64_t row, T* to) { add_to(n, x + row * ld, to); });
  put_sums(n, sums, out, add);
}

// ---- layer norm

template <class T>
T sum_of(int64_t n, const T* x) {
  Vector<T> sum{};
  for_vectors<T>(n, [&](auto load_at, auto) { sum += load_at(x); });
  return sum_lanes<T>(sum);
}

template <class T>
void layer_norm(int64_t rows, int64_t n, const T* x, const T* gain, const T* bias, T* y, T* mean,
                T* rstd) {
  for (int64_t row = 0; row < rows; ++row, x += n, y += n) {
    const T m = sum_of(n, x) / T(n);
    Vector<T> squares{};
    int64_t i = 0;
    for (; i + kLanes<T> <= n; i += kLanes<T>) {
      const Vector<T> v = load(x + i) - m;
      squares += v * v;
    }
    if (i < n) {
      // A part of a vector is filled up with the mean, which adds nothing.
      Vector<T> v = splat(m);
      std::memcpy(&v, x + i, static_cast<size_t>(n - i) * sizeof(T));
      squares += (v - m) * (v - m);
    }
    const T r = T(1) / std::sqrt(sum_lanes<T>(squares) / T(n) + T(1e-5));
    mean[row] = m;
    rstd[row] = r;
    for_vectors<T>(n, [&](auto load_at, auto store_at) {
      store_at(y, (load_at(x) - m) * r * load_at(gain) + load_at(bias));
    });
  }
}

template <class T>
void layer_norm_backward(int64_t n, Leaves leaves, const T* x, const T* gain, const T* mean,
                         const T* rstd, const T* dy, T* dx, T* dgain, T* dbias, bool add) {
  // Sums of dgain, then of dbias.
  const T* const sums = tree_sum_rows<T>(2 * n, leaves, [&](int64_t row, T* to) {
    const T m = mean[row], r = rstd[row];
    const T *const x_row = x + row * n, *const dy_row = dy + row * n;
    T* const dx_row = dx + row * n;
    Vector<T> gs{}, products{};
    for_vectors<T>(n, [&](auto load_at, auto store_at) {
      const Vector<T> d = load_at(dy_row), normal = (load_at(x_row) - m) * r, g = d * load_at(gain);
      gs += g;
      products += g * normal;
      store_at(to, load_at(to) + d * normal);
      store_at(to + n, load_at(to + n) + d);
    });
    // With parts of vectors, lanes beyond the row hold g = 0.
    const T sum = sum_lanes<T>(gs) / T(n), product = sum_lanes<T>(products) / T(n);
    for_vectors<T>(n, [&](auto load_at, auto store_at) {
      const Vector<T> normal = (load_at(x_row) - m) * r;
      store_at(dx_row, load_at(dx_row) + (load_at(dy_row) * load_at(gain) - sum - normal * product) * r);
    });
  });
  put_sums(n, sums, dgain, add);
  put_sums(n, sums + n, dbias, add);
}

// ---- the loss

// Whether a row's largest logit is the label's, and no other one before it: of several that are as large the first is guessed.
template <class T>
bool guesses(const T* logits, int64_t label, T most) {
  bool is_first = logits[label] == most;
  for (int64_t i = 0; is_first && i < label; ++i) is_first = logits[i] != most;
  return is_first;
}

template <class T>
int64_t softmax_cross_entropy(int64_t rows, int64_t n, const int32_t* labels, T* logits,
                              double* losses) {
  int64_t correct = 0;
  for (int64_t row = 0; row < rows; ++row, logits += n) {
    const T right = logits[labels[row]];
    T most = logits[0];
    int64_t i = 0;
    if (n >= kLanes<T>) {
      Vector<T> vector = load(logits);
      for (i = kLanes<T>; i + kLanes<T> <= n; i += kLanes<T>) vector = larger(vector, load(logits + i));
      most = max_lanes<T>(vector);
    }
    for (; i < n; ++i) most = logits[i] > most ? logits[i] : most;
    correct += guesses(logits, labels[row], most);
    Vector<T> sums{};
    for_vectors<T>(n, [&](auto load_at, auto store_at) {
      store_at(logits, exp(load_at(logits) - most));
    });
    for_vectors<T>(n, [&](auto load_at, auto) { sums += load_at(logits); });
    const T sum = sum_lanes<T>(sums);
    const T scale = T(1) / sum;
    for_vectors<T>(n, [&](auto load_at, auto store_at) { store_at(logits, load_at(logits) * scale); });
    logits[labels[row]] -= T(1);
    losses[row] = std::log(static_cast<double>(sum)) + static_cast<double>(most - right);
  }
  return correct;
}

// ---- embeddings

template <class T>
void embed(int64_t rows, int64_t n, int64_t context, const int32_t* ids, const T* tokens,
           const T* positions, T* x) {
  for (int64_t row = 0; row < rows; ++row, x += n) {
    const T* token = tokens + ids[row] * n;
    const T* position = positions + row % context * n;
    for_vectors<T>(n, [&](auto load_at, auto store_at) {
      store_at(x, load_at(token) + load_at(position));
    });
  }
}

template <class T>
void position_gradient(int64_t n, int64_t context, Leaves leaves, const T* dx, T* out, bool add) {
  for (int64_t position = 0; position < context; ++position) {
    tree_sum_columns<T>(n, leaves, out + position * n, add, [&](int64_t sample, auto load_at) {
      return load_at(dx + (sample * context + position) * n);
    });
  }
}

}  // namespace dtrain::engine::DTRAIN_ISA
