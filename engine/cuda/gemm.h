// Matrix products on a GPU, with what follows a product done where its result is still in registers.
// cublas_gemm.cc does them by cuBLASLt. Owner and thread: one participant.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>

#include "engine/cuda/kernels.h"
#include "schema/result.h"

namespace dtrain::engine::cuda {

enum class After {
  Nothing,
  Relu,
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

// fp32 products may be computed by tensor cores with 10 bits of mantissa (tf32).
enum class Fp32 { Full, Tf32 };

class Gemm {
 public:
  static Result<std::unique_ptr<Gemm>> open(Fp32 fp32);
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
