// Gemm on the emulated device: plain loops. Of each shape the first one allocates and waits, as cuBLASLt's plans do.
#include "engine/cuda/gemm.h"

#include <cmath>
#include <set>
#include <tuple>
#include <vector>

#include "cuda_runtime.h"
#include "emulator.h"
#include "engine/cuda/memory.h"

namespace dtrain::engine::cuda {

namespace {

double gelu_tanh(double x) { return std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)); }
double gelu(double x) { return 0.5 * x * (1 + gelu_tanh(x)); }
double gelu_slope(double x) {
  const double t = gelu_tanh(x);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

// fp32 and bf16 are summed in fp32, as tensor cores do, doubles in doubles.
template <class T, class Out>
void multiply(const Product<T, Out>& p) {
  using S = Sum<T>;
  for (int64_t m = 0; m < p.m; ++m) {
    for (int64_t n = 0; n < p.n; ++n) {
      S sum = 0;
      for (int64_t k = 0; k < p.k; ++k) {
        sum += static_cast<S>(p.a.data[m * p.a.row_stride + k * p.a.column_stride]) *
               static_cast<S>(p.b.data[k * p.b.row_stride + n * p.b.column_stride]);
      }
      Out& c = p.c[m * p.ldc + n];
      if (p.add) sum += static_cast<S>(c);
      if (p.onto != nullptr) sum += static_cast<S>(p.onto[m * p.ldc + n]);
      if (p.bias != nullptr) sum += static_cast<S>(p.bias[n]);
      T* kept = p.kept == nullptr ? nullptr : p.kept + m * p.ldc + n;
      switch (p.after) {
        case After::Nothing: break;
        case After::Gelu:
          *kept = static_cast<T>(sum);
          sum = static_cast<S>(gelu(static_cast<double>(sum)));
          break;
        case After::GeluBackward:
          sum *= static_cast<S>(gelu_slope(static_cast<double>(static_cast<S>(*kept))));
          break;
      }
      c = static_cast<Out>(sum);
    }
  }
}

class EmulatedGemm : public Gemm {
 public:
  explicit EmulatedGemm(Device& device) : device_(device) {}

  void run(cudaStream_t stream, const Product<float, float>& p) override { run_any(stream, p); }
  void run(cudaStream_t stream, const Product<double, double>& p) override { run_any(stream, p); }
  void run(cudaStream_t stream, const Product<Bfloat16, Bfloat16>& p) override { run_any(stream, p); }
  void run(cudaStream_t stream, const Product<Bfloat16, float>& p) override { run_any(stream, p); }
  const Status& status() const override { return status_; }

 private:
  template <class T, class Out>
  void run_any(cudaStream_t stream, const Product<T, Out>& p) {
    const auto contiguous = [](int64_t row, int64_t column) { return row == 1 || column == 1; };
    if (!contiguous(p.a.row_stride, p.a.column_stride) || !contiguous(p.b.row_stride, p.b.column_stride)) {
      status_ = Error{Code::InvalidArgument, "neither rows nor columns of a matrix are contiguous", ""};
      return;
    }
    if (p.kept != nullptr && p.n % kKeptUnit != 0) {
      status_ = Error{Code::InvalidArgument, "rows of what is kept are no multiple of 8", ""};
      return;
    }
    if (const auto shape = std::tuple(p.m, p.n, p.k, p.a.row_stride, p.b.row_stride, p.ldc, p.add, p.after);
        !planned_.contains(shape)) {
      status_ = device_.settle();
      if (!status_.ok()) return;
      try {
        apart_.emplace_back(1);
      } catch (const std::bad_alloc&) {
        // Then nothing is timed.
      }
      if (const cudaError_t error = cudaStreamSynchronize(stream); error != cudaSuccess) {
        status_ = Error{Code::Internal, fmt::format("plan a product: {}", cudaGetErrorName(error)), ""};
        return;
      }
      planned_.insert(shape);
      emulated::count_plan();
    }
    emulated::enqueue(stream, [p] {
      multiply(p);
      return true;
    });
  }
  std::set<std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, bool, After>> planned_;
  Device& device_;
  std::vector<DeviceMemory<char>> apart_;
  Status status_ = ok();
};

}  // namespace

Result<std::unique_ptr<Gemm>> Gemm::open(Device& device, Fp32) {
  return std::unique_ptr<Gemm>(std::make_unique<EmulatedGemm>(device));
}

}  // namespace dtrain::engine::cuda
