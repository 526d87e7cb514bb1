// Vectors of the instruction set that a kernel file is compiled for, and what is computed on them.
// Included by kernels_<isa>.cc alone, after DTRAIN_ISA (a namespace) and DTRAIN_VECTOR_BYTES are set.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace dtrain::engine::DTRAIN_ISA {

template <class T>
inline constexpr int kLanes = DTRAIN_VECTOR_BYTES / static_cast<int>(sizeof(T));

template <class T>
struct VectorOf;
template <>
struct VectorOf<float> {
  typedef float Type __attribute__((vector_size(DTRAIN_VECTOR_BYTES)));
  typedef int32_t Bits __attribute__((vector_size(DTRAIN_VECTOR_BYTES)));
};
template <>
struct VectorOf<double> {
  typedef double Type __attribute__((vector_size(DTRAIN_VECTOR_BYTES)));
  typedef int64_t Bits __attribute__((vector_size(DTRAIN_VECTOR_BYTES)));
};
template <class T>
using Vector = typename VectorOf<T>::Type;
template <class T>
using Bits = typename VectorOf<T>::Bits;

#define DTRAIN_INLINE inline __attribute__((always_inline))

template <class T>
DTRAIN_INLINE Vector<T> load(const T* from) {
  Vector<T> vector;
  std::memcpy(&vector, from, sizeof vector);
  return vector;
}
template <class T>
DTRAIN_INLINE void store(T* to, Vector<T> vector) {
  std::memcpy(to, &vector, sizeof vector);
}
template <class T>
DTRAIN_INLINE Vector<T> splat(T value) {
  return value - Vector<T>{};  // minus zero folds away, plus zero does not
}

// The first `count` lanes; the others are zero, and untouched by store_some.
template <class T>
DTRAIN_INLINE Vector<T> load_some(const T* from, int64_t count) {
  Vector<T> vector{};
  std::memcpy(&vector, from, static_cast<size_t>(count) * sizeof(T));
  return vector;
}
template <class T>
DTRAIN_INLINE void store_some(T* to, Vector<T> vector, int64_t count) {
  std::memcpy(to, &vector, static_cast<size_t>(count) * sizeof(T));
}
// Copying so many bytes is a call; these have an instruction for it.
#if DTRAIN_VECTOR_BYTES == 64
DTRAIN_INLINE __mmask16 first_lanes(int64_t count) { return static_cast<__mmask16>((1u << count) - 1); }
DTRAIN_INLINE Vector<float> load_some(const float* from, int64_t count) {
  return _mm512_maskz_loadu_ps(first_lanes(count), from);
}
DTRAIN_INLINE void store_some(float* to, Vector<float> vector, int64_t count) {
  _mm512_mask_storeu_ps(to, first_lanes(count), vector);
}
#elif DTRAIN_VECTOR_BYTES == 32
DTRAIN_INLINE __m256i first_lanes(int64_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
DTRAIN_INLINE Vector<float> load_some(const float* from, int64_t count) {
  return _mm256_maskload_ps(from, first_lanes(count));
}
DTRAIN_INLINE void store_some(float* to, Vector<float> vector, int64_t count) {
  _mm256_maskstore_ps(to, first_lanes(count), vector);
}
#endif

// Calls body(i, load, store) for each vector of `count` elements; the last may be a part of one, and
// is computed like the others, so that an element's bits don't depend on where it lies. kWhole: it never is.
template <class T, bool kWhole = false, class Body>
DTRAIN_INLINE void for_vectors(int64_t count, Body body) {
  int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) {
    body([i](const T* p) { return load(p + i); }, [i](T* p, Vector<T> v) { store(p + i, v); });
  }
  if constexpr (kWhole) return;
  if (const int64_t rest = count - i; rest > 0) {
    body([i, rest](const T* p) { return load_some(p + i, rest); },
         [i, rest](T* p, Vector<T> v) { store_some(p + i, v, rest); });
  }
}

template <class V>
DTRAIN_INLINE V larger(V a, V b) {
  return a > b ? a : b;
}

// What is no number stays so: a loss that comes of it must show it.
template <class V>
DTRAIN_INLINE V relu(V x) {
  return x < V{} ? V{} : x;
}

// x, and zero where `sign` isn't greater than zero.
template <class V>
DTRAIN_INLINE V only_where(V sign, V x) {
  return sign > V{} ? x : V{};
}

// By halves: always in the same order.
template <class T>
DTRAIN_INLINE T sum_lanes(Vector<T> vector) {
  T lanes[kLanes<T>];
  std::memcpy(lanes, &vector, sizeof lanes);
#pragma GCC unroll 4
  for (int half = kLanes<T> / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}
template <class T>
DTRAIN_INLINE T max_lanes(Vector<T> vector) {
  T most = vector[0];
  for (int i = 1; i < kLanes<T>; ++i) most = vector[i] > most ? vector[i] : most;
  return most;
}

// exp(x) to about one unit in the last place; 0 below -87, the exponent clamped at 88.
DTRAIN_INLINE Vector<float> exp(Vector<float> x) {
  using V = Vector<float>;
  using B = Bits<float>;
  const V low = splat(-87.0f), high = splat(88.0f);
  const B under = x < low;
  x = x < low ? low : x;
  x = x > high ? high : x;
  // x = n ln 2 + r, |r| <= ln 2 / 2: adding 1.5 * 2^23 rounds to the integer n.
  const V magic = splat(12582912.0f);
  const V shifted = x * 1.44269504f + magic;
  const V n = shifted - magic;
  V r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  // Taylor's series to r^7: the rest is below 1e-8 in this interval.
  V p = splat(1.0f / 5040);
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  B bits, exponent;
  std::memcpy(&bits, &p, sizeof bits);
  std::memcpy(&exponent, &shifted, sizeof exponent);
  bits += exponent << 23;  // magic's own bits are shifted out, but for n
  bits &= ~under;
  V result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

// Doubles serve to check gradients: right rather than fast.
DTRAIN_INLINE Vector<double> exp(Vector<double> x) {
  Vector<double> result{};
  for (int i = 0; i < kLanes<double>; ++i) result[i] = std::exp(x[i]);
  return result;
}

}  // namespace dtrain::engine::DTRAIN_ISA
