// Matrix products on a GPU, with what follows a product done where its result is still in registers.
// cublas_gemm.cc does them by cuBLASLt. Owner and thread: one participant.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "engine/cuda/device.h"
#include "engine/cuda/kernels.h"
#include "schema/result.h"

namespace dtrain::engine::cuda {

enum class After {
  Nothing,
  Gelu,          // by tanh; `kept` gets what went into it
  GeluBackward,  // times the slope of gelu at `kept`
};

// C [m][n] (rows ldc apart) = after(A B + bias), or C + A B, or onto + A B + bias. Strides: one of the two of
// A, and of B, is 1.
template <class T, class Out>
struct Product {
  int64_t m = 0, n = 0, k = 0;
  GemmA<T> a = {};
  GemmB<T> b = {};
  Out* c = nullptr;
  int64_t ldc = 0;
  bool add = false;
  const Out* onto = nullptr;  // laid out as C
  const T* bias = nullptr;    // [n]
  After after = After::Nothing;
  T* kept = nullptr;          // [m][n]; n a multiple of kKeptUnit
};
inline constexpr int64_t kKeptUnit = 8;

// The same as two products, the second after the first, where one dimension is no multiple of 8 and rows begin at
// multiples nevertheless: the larger of the two is whole 16 bytes everywhere, which is what the fastest kernels of
// tensor cores ask for. GPT-2's vocabulary is 50257.
inline constexpr int64_t kWholeUnit = 8;
template <class T, class Out>
std::optional<std::pair<Product<T, Out>, Product<T, Out>>> cut(const Product<T, Out>& p) {
  const auto is_whole = [](int64_t count) { return count % kWholeUnit == 0; };
  const bool m_lies = p.a.row_stride == 1, k_lies = p.a.column_stride == 1 || p.b.row_stride == 1;
  const int64_t lda = m_lies ? p.a.column_stride : p.a.row_stride;
  const int64_t ldb = p.b.row_stride == 1 ? p.b.column_stride : p.b.row_stride;
  const bool cuts_m = m_lies && !is_whole(p.m), cuts_n = !is_whole(p.n), cuts_k = k_lies && !is_whole(p.k);
  if (cuts_m + cuts_n + cuts_k != 1 || !is_whole(lda) || !is_whole(ldb) || !is_whole(p.ldc)) return std::nullopt;
  if (p.bias != nullptr || p.after != After::Nothing) return std::nullopt;
  Product<T, Out> most = p, rest = p;
  const auto split = [](int64_t& whole, int64_t& left) {
    whole = whole / kWholeUnit * kWholeUnit;
    left -= whole;
    return whole;
  };
  if (cuts_k) {
    if (p.add || p.onto != nullptr) return std::nullopt;
    const int64_t first = split(most.k, rest.k);
    rest.a.data += first * p.a.column_stride;
    rest.b.data += first * p.b.row_stride;
    most.add = true;  // what is small is rounded first, and what it is then added to once
    return most.k == 0 ? std::nullopt : std::optional(std::pair(rest, most));
  }
  const int64_t first = cuts_m ? split(most.m, rest.m) : split(most.n, rest.n);
  const int64_t in_c = cuts_m ? first * p.ldc : first;
  if (cuts_m) rest.a.data += first;
  if (cuts_n) rest.b.data += first * p.b.column_stride;
  rest.c += in_c;
  if (p.onto != nullptr) rest.onto += in_c;
  return first == 0 ? std::nullopt : std::optional(std::pair(most, rest));
}

// The same as two products, the second after the first, where a matrix reaches over more elements than kernels of
// cuBLASLt count: from 2^31 on they read and write elsewhere. The logits of 64 samples of GPT-2 do.
inline constexpr int64_t kMostReach = (int64_t{1} << 31) - 1;
inline int64_t reach(int64_t rows, int64_t row_stride, int64_t columns, int64_t column_stride) {
  return (rows - 1) * row_stride + (columns - 1) * column_stride + 1;
}
template <class T, class Out>
std::optional<std::pair<Product<T, Out>, Product<T, Out>>> halves(const Product<T, Out>& p,
                                                                        int64_t most = kMostReach) {
  const bool a_reaches = reach(p.m, p.a.row_stride, p.k, p.a.column_stride) > most;
  const bool b_reaches = reach(p.k, p.b.row_stride, p.n, p.b.column_stride) > most;
  const bool by_m = reach(p.m, p.ldc, p.n, 1) > most || (a_reaches && p.a.column_stride == 1);
  const bool by_n = b_reaches && p.b.row_stride == 1;
  const bool by_k = a_reaches || b_reaches;
  Product<T, Out> first = p, second = p;
  const auto split = [](int64_t& lower, int64_t& upper) {
    const int64_t unit = lower > kWholeUnit ? kWholeUnit : 1;
    lower = (lower / 2 + unit - 1) / unit * unit;
    upper -= lower;
    return lower;
  };
  if (by_m) {
    const int64_t rows = split(first.m, second.m);
    second.a.data += rows * p.a.row_stride;
    second.c += rows * p.ldc;
    if (p.onto != nullptr) second.onto += rows * p.ldc;
    if (p.kept != nullptr) second.kept += rows * p.ldc;
  } else if (by_n) {
    const int64_t columns = split(first.n, second.n);
    second.b.data += columns * p.b.column_stride;
    second.c += columns;
    if (p.onto != nullptr) second.onto += columns;
    if (p.bias != nullptr) second.bias += columns;
    if (p.kept != nullptr) second.kept += columns;
  } else if (by_k && p.after == After::Nothing) {
    const int64_t terms = split(first.k, second.k);
    second.a.data += terms * p.a.column_stride;
    second.b.data += terms * p.b.row_stride;
    second.add = true;
    second.onto = nullptr;
    second.bias = nullptr;
  } else {
    return std::nullopt;
  }
  return std::pair(first, second);
}

// fp32 products may be computed by tensor cores with 10 bits of mantissa (tf32).
enum class Fp32 { Full, Tf32 };

class Gemm {
 public:
  // `device` outlives it.
  static Result<std::unique_ptr<Gemm>> open(Device& device, Fp32 fp32);
  virtual ~Gemm() = default;

  // (T, Out): float or double both, or Bfloat16 and either itself or float. The first product of a shape
  // chooses how: that must not be while a stream is captured.
  virtual void run(cudaStream_t stream, const Product<float, float>& product) = 0;
  virtual void run(cudaStream_t stream, const Product<double, double>& product) = 0;
  virtual void run(cudaStream_t stream, const Product<Bfloat16, Bfloat16>& product) = 0;
  virtual void run(cudaStream_t stream, const Product<Bfloat16, float>& product) = 0;

  // The first error of all that was asked.
  virtual const Status& status() const = 0;
};

}  // namespace dtrain::engine::cuda
