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
      store_at(x, larger(load_at(x) + load_at(bias), Vector<T>{}));
    });
  }
}

template <class T>
void relu_backward(int64_t count, const T* y, T* dy) {
  for_vectors<T>(count, [&](auto load_at, auto store_at) {
    store_at(dy, load_at(y) > Vector<T>{} ? load_at(dy) : Vector<T>{});
  });
}

// GPT-2's: x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3). tanh(u) = 1 - 2 / (exp(2u) + 1).
template <class T>
DTRAIN_INLINE Vector<T> gelu_tanh(Vector<T> x) {
  const Vector<T> u = (x * x * x * T(0.044715) + x) * T(0.7978845608028654);
  return T(1) - T(2) / (exp(u + u) + T(1));
}

template <class T>
void add_bias_gelu(int64_t rows, int64_t n, const T* bias, T* x, T* y) {
  for (int64_t row = 0; row < rows; ++row, x += n, y += n) {
    for_vectors<T>(n, [&](auto load_at, auto store_at) {
      const Vector<T> v = load_at(x) + load_at(bias);
      store_at(x, v);
      store_at(y, v * T(0.5) * (gelu_tanh<T>(v) + T(1)));
    });
  }
}

template <class T>
void gelu_backward(int64_t count, const T* x, T* dy) {
  for_vectors<T>(count, [&](auto load_at, auto store_at) {
    const Vector<T> v = load_at(x);
    const Vector<T> t = gelu_tanh<T>(v);
    const Vector<T> slope = (v * v * T(3 * 0.044715) + T(1)) * T(0.7978845608028654);
    store_at(dy, load_at(dy) * T(0.5) * (t + T(1) + v * (T(1) - t * t) * slope));
  });
}

template <class T>
void standardise(int64_t count, const uint8_t* bytes, T mean, T factor, T* x) {
  for (int64_t i = 0; i < count; ++i) x[i] = (static_cast<T>(bytes[i]) - mean) * factor;
}

template <class T>
void add_to(int64_t count, const T* x, T* y) {
  for_vectors<T>(count, [&](auto load_at, auto store_at) { store_at(y, load_at(y) + load_at(x)); });
}

template <class T>
void sum_rows(int64_t n, Leaves leaves, const T* x, T* out, bool add) {
  tree_sum_columns<T>(n, leaves, out, add,
                      [&](int64_t row, auto load_at) { return load_at(x + row * n); });
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
    T squares = 0;
    for (int64_t i = 0; i < n; i += kLanes<T>) {
      const int64_t count = n - i < kLanes<T> ? n - i : kLanes<T>;
      // A part of a vector is filled up with the mean, which adds nothing.
      Vector<T> v = splat(m);
      std::memcpy(&v, x + i, static_cast<size_t>(count) * sizeof(T));
      squares += sum_lanes<T>((v - m) * (v - m));
    }
    const T r = T(1) / std::sqrt(squares / T(n) + T(1e-5));
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
  tree_sum_columns<T>(n, leaves, dgain, add, [&](int64_t row, auto load_at) {
    return load_at(dy + row * n) * (load_at(x + row * n) - mean[row]) * rstd[row];
  });
  sum_rows(n, leaves, dy, dbias, add);
  const int64_t rows = leaves.ends[leaves.count - 1];
  for (int64_t row = 0; row < rows; ++row, x += n, dy += n, dx += n) {
    const T m = mean[row], r = rstd[row];
    Vector<T> sums{}, products{};
    for_vectors<T>(n, [&](auto load_at, auto) {
      const Vector<T> g = load_at(dy) * load_at(gain);
      sums += g;
      products += g * ((load_at(x) - m) * r);
    });
    // With parts of vectors, lanes beyond the row hold g = 0.
    const T sum = sum_lanes<T>(sums) / T(n), product = sum_lanes<T>(products) / T(n);
    for_vectors<T>(n, [&](auto load_at, auto store_at) {
      const Vector<T> normal = (load_at(x) - m) * r;
      store_at(dx, load_at(dx) + (load_at(dy) * load_at(gain) - sum - normal * product) * r);
    });
  }
}

// ---- the loss

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
    correct += right == most;
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
