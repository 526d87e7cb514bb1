// GELU and its slope, on vectors.
#pragma once

#include "engine/kernels/vector.h"

namespace dtrain::engine::DTRAIN_ISA {

// GPT-2's: x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3). tanh(u) = 1 - 2 / (exp(2u) + 1).
template <class T>
DTRAIN_INLINE Vector<T> gelu_tanh(Vector<T> x) {
  const Vector<T> u = (x * x * x * T(0.044715) + x) * T(0.7978845608028654);
  return T(1) - T(2) / (exp(u + u) + T(1));
}

template <class T>
struct Gelu {
  Vector<T> value, slope;
};
template <class T>
DTRAIN_INLINE Gelu<T> gelu(Vector<T> x) {
  const Vector<T> t = gelu_tanh<T>(x), half = x * T(0.5);
  const Vector<T> du = (x * x * T(3 * 0.044715) + T(1)) * T(0.7978845608028654);
  return {half * (t + T(1)), T(0.5) * (t + T(1)) + half * (T(1) - t * t) * du};
}

}  // namespace dtrain::engine::DTRAIN_ISA
