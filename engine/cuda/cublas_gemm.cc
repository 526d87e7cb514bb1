// Products by cuBLASLt. Of each shape the library's candidates are timed once, and the fastest is kept.
//
// cuBLASLt is column-major: C row-major is C transposed, B transposed times A transposed. So its first
// operand is our B, and its bias runs along our rows.
#include <cublasLt.h>

#include <array>
#include <bit>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include "engine/cuda/gemm.h"
#include "engine/library.h"
#include "engine/cuda/memory.h"

namespace dtrain::engine::cuda {

namespace {

#define DTRAIN_CUBLASLT(F)                                                                           \
  F(Create) F(Destroy) F(Matmul) F(MatmulDescCreate) F(MatmulDescDestroy) F(MatmulDescSetAttribute)  \
  F(MatrixLayoutCreate) F(MatrixLayoutDestroy) F(MatmulPreferenceCreate) F(MatmulPreferenceDestroy)  \
  F(MatmulPreferenceSetAttribute) F(MatmulAlgoGetHeuristic) F(GetStatusString)

struct CublasLt {
#define F(name) decltype(&cublasLt##name) name = nullptr;
  DTRAIN_CUBLASLT(F)
#undef F

  static Result<CublasLt> load() {
    TRY(const Library library, Library::open({"libcublasLt.so.13", "libcublasLt.so"}, "CUDA 13's cuBLAS"));
    CublasLt found;
#define F(name) TRY(library.find("cublasLt" #name, found.name));
    DTRAIN_CUBLASLT(F)
#undef F
    return found;
  }
};

// What cuBLASLt makes, given back by it.
template <class T>
class Handle {
 public:
  using Destroy = cublasStatus_t (*)(T);
  Handle() = default;
  explicit Handle(Destroy destroy) : destroy_(destroy) {}
  Handle(Handle&& other) noexcept : destroy_(other.destroy_), value_(std::exchange(other.value_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(destroy_, other.destroy_);
    std::swap(value_, other.value_);
    return *this;
  }
  ~Handle() {
    if (value_ != nullptr) destroy_(value_);
  }
  T get() const { return value_; }
  T* out() { return &value_; }

 private:
  Destroy destroy_ = nullptr;
  T value_ = nullptr;
};

template <class T>
constexpr cudaDataType_t kType = CUDA_R_32F;
template <>
constexpr cudaDataType_t kType<double> = CUDA_R_64F;
template <>
constexpr cudaDataType_t kType<Bfloat16> = CUDA_R_16BF;

// A product without its pointers, but for how they are aligned: what a plan depends on.
struct Shape {
  cudaDataType_t type, out;
  int64_t m, n, k;
  bool a_transposed, b_transposed;
  int64_t lda, ldb, ldc;
  bool reads_c;
  int epilogue;
  std::array<uint32_t, 6> alignments;  // of B, A, C, D, kept, bias

  auto operator<=>(const Shape&) const = default;
};

uint32_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  return address == 0 ? 256 : uint32_t{1} << std::min(8, std::countr_zero(address));
}

// A matrix of which one stride is 1, as cuBLASLt takes it.
struct Strides {
  bool transposed;
  int64_t ld;
};
// Of an operand whose element (i, j) is at i row + j column, seen column-major with j along columns of the
// row-major matrix: rows next to each other are not transposed. `rows` and `columns` bound ld where a
// dimension is 1.
Strides strides_of(int64_t row_stride, int64_t column_stride, int64_t rows, int64_t columns) {
  if (column_stride == 1) return {false, std::max(row_stride, columns)};
  INVARIANT(row_stride == 1, "rows or columns of a matrix are contiguous");
  return {true, std::max(column_stride, rows)};
}

class CublasGemm : public Gemm {
 public:
  CublasGemm(const CublasLt& lib, Device& device, Fp32 fp32)
      : lib_(lib), device_(device), fp32_(fp32), workspace_(kWorkspaceBytes) {}
  ~CublasGemm() override {
    if (handle_ != nullptr) lib_.Destroy(handle_);
    for (const cudaEvent_t each : {began_, ended_}) {
      if (each != nullptr) cudaEventDestroy(each);
    }
  }

  Status start() {
    check(lib_.Create(&handle_), "start cuBLASLt");
    for (cudaEvent_t* each : {&began_, &ended_}) {
      if (cudaEventCreate(each) != cudaSuccess) status_ = Error{Code::Internal, "CUDA made no event", ""};
    }
    return status_;
  }

  void run(cudaStream_t stream, const Product<float, float>& p) override { run_any(stream, p); }
  void run(cudaStream_t stream, const Product<double, double>& p) override { run_any(stream, p); }
  void run(cudaStream_t stream, const Product<Bfloat16, Bfloat16>& p) override { run_any(stream, p); }
  void run(cudaStream_t stream, const Product<Bfloat16, float>& p) override { run_any(stream, p); }
  const Status& status() const override { return status_; }

 private:
  static constexpr int64_t kWorkspaceBytes = 64 << 20;
  static constexpr int kCandidates = 12;
  static constexpr int kTimings = 4;

  struct Plan {
    Handle<cublasLtMatmulDesc_t> product;
    Handle<cublasLtMatrixLayout_t> a, b, c;
    cublasLtMatmulAlgo_t algorithm;
    bool is_cut = false;  // done as two: cut()
  };

  void check(cublasStatus_t status, std::string_view doing) {
    if (status == CUBLAS_STATUS_SUCCESS || !status_.ok()) return;
    status_ = Error{Code::Internal, fmt::format("{}: {}", doing, lib_.GetStatusString(status)), ""};
  }

  template <class T, class Out>
  static Shape shape_of(const Product<T, Out>& p) {
    const Strides a = strides_of(p.a.row_stride, p.a.column_stride, p.m, p.k);
    const Strides b = strides_of(p.b.row_stride, p.b.column_stride, p.k, p.n);
    const void* c = p.onto != nullptr ? p.onto : p.c;
    return {.type = kType<T>, .out = kType<Out>, .m = p.m, .n = p.n, .k = p.k,
            .a_transposed = a.transposed, .b_transposed = b.transposed,
            .lda = a.ld, .ldb = b.ld, .ldc = p.ldc,
            .reads_c = p.add || p.onto != nullptr,
            .epilogue = epilogue_of(p),
            .alignments = {alignment_of(p.b.data), alignment_of(p.a.data), alignment_of(c), alignment_of(p.c),
                           alignment_of(p.kept), alignment_of(p.bias)}};
  }

  template <class T, class Out>
  static cublasLtEpilogue_t epilogue_of(const Product<T, Out>& p) {
    const bool bias = p.bias != nullptr;
    switch (p.after) {
      case After::Gelu: return bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
      case After::GeluBackward: return CUBLASLT_EPILOGUE_DGELU;
      case After::Nothing: break;
    }
    return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  }

  template <class T, class Out>
  void run_any(cudaStream_t stream, const Product<T, Out>& p) {
    if (p.m == 0 || p.n == 0 || !status_.ok()) return;
    if (const auto parts = halves(p)) return run_parts(stream, *parts);
    const Shape shape = shape_of(p);
    auto at = plans_.find(shape);
    if (at == plans_.end()) {
      status_ = device_.settle();
      if (!status_.ok()) return;
      Plan plan;
      describe(shape, plan);
      set_pointers(plan, p);
      choose(stream, shape, plan, p);
      if (!status_.ok()) return;
      at = plans_.emplace(shape, std::move(plan)).first;
    }
    if (at->second.is_cut) return run_parts(stream, *cut(p));
    set_pointers(at->second, p);
    check(multiply(stream, at->second, at->second.algorithm, p, p.c), "multiply matrices");
  }

  template <class X>
  void set(Plan& plan, cublasLtMatmulDescAttributes_t attribute, const X& value) {
    check(lib_.MatmulDescSetAttribute(plan.product.get(), attribute, &value, sizeof value), "plan a product");
  }

  // Their first operand is B.
  void describe(const Shape& shape, Plan& plan) {
    const bool is_double = shape.type == CUDA_R_64F;
    const bool tf32 = shape.type == CUDA_R_32F && fp32_ == Fp32::Tf32;
    const cublasComputeType_t compute =
        is_double ? CUBLAS_COMPUTE_64F : tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    plan.product = Handle<cublasLtMatmulDesc_t>(lib_.MatmulDescDestroy);
    plan.a = Handle<cublasLtMatrixLayout_t>(lib_.MatrixLayoutDestroy);
    plan.b = Handle<cublasLtMatrixLayout_t>(lib_.MatrixLayoutDestroy);
    plan.c = Handle<cublasLtMatrixLayout_t>(lib_.MatrixLayoutDestroy);
    check(lib_.MatmulDescCreate(plan.product.out(), compute, is_double ? CUDA_R_64F : CUDA_R_32F), "plan a product");
    if (!status_.ok()) return;
    set(plan, CUBLASLT_MATMUL_DESC_TRANSA, shape.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(plan, CUBLASLT_MATMUL_DESC_TRANSB, shape.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    const auto layout = [&](Handle<cublasLtMatrixLayout_t>& to, cudaDataType_t type, int64_t rows, int64_t columns,
                            int64_t ld) {
      check(lib_.MatrixLayoutCreate(to.out(), type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), ld),
            "plan a product");
    };
    layout(plan.b, shape.type, shape.b_transposed ? shape.k : shape.n, shape.b_transposed ? shape.n : shape.k,
           shape.ldb);
    layout(plan.a, shape.type, shape.a_transposed ? shape.m : shape.k, shape.a_transposed ? shape.k : shape.m,
           shape.lda);
    layout(plan.c, shape.out, shape.n, shape.m, shape.ldc);
  }

  template <class T, class Out>
  void set_pointers(Plan& plan, const Product<T, Out>& p) {
    if (!status_.ok()) return;
    set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(p));
    if (p.bias != nullptr) set(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    if (p.kept != nullptr) {
      set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.kept);
      set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.ldc);
    }
  }

  template <class T, class Out>
  cublasStatus_t multiply(cudaStream_t stream, const Plan& plan, const cublasLtMatmulAlgo_t& algorithm,
                          const Product<T, Out>& p, Out* d) {
    using Scalar = std::conditional_t<std::is_same_v<T, double>, double, float>;
    const Scalar one = 1, beta = p.add || p.onto != nullptr ? 1 : 0;
    const Out* c = p.onto != nullptr ? p.onto : p.add ? p.c : d;
    return lib_.Matmul(handle_, plan.product.get(), &one, p.b.data, plan.b.get(), p.a.data, plan.a.get(), &beta, c,
                       plan.c.get(), d, plan.c.get(), &algorithm, workspace_.data(),
                       static_cast<size_t>(workspace_.size()), stream);
  }

  template <class T, class Out>
  void choose(cudaStream_t stream, const Shape& shape, Plan& plan, const Product<T, Out>& p) {
    if (!status_.ok()) return;
    Handle<cublasLtMatmulPreference_t> preference(lib_.MatmulPreferenceDestroy);
    check(lib_.MatmulPreferenceCreate(preference.out()), "plan a product");
    if (!status_.ok()) return;
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      check(lib_.MatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value), "plan a product");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace_.size()));
    // Partial sums are neither rounded to bf16 nor added in whatever order they come.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, shape.alignments[0]);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, shape.alignments[1]);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, shape.alignments[2]);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, shape.alignments[3]);
    std::array<cublasLtMatmulHeuristicResult_t, kCandidates> candidates;
    int found = 0;
    const cublasStatus_t asked =
        lib_.MatmulAlgoGetHeuristic(handle_, plan.product.get(), plan.b.get(), plan.a.get(), plan.c.get(), plan.c.get(),
                                    preference.get(), kCandidates, candidates.data(), &found);
    if (!status_.ok()) return;
    if (asked != CUBLAS_STATUS_SUCCESS || found == 0) {
      status_ = Error{Code::Internal,
                      fmt::format("cuBLASLt has no product of {} x {} x {}: {}", shape.m, shape.n, shape.k,
                                  lib_.GetStatusString(asked)),
                      // Before compute capability 8.0 not with all that follows a product.
                      shape.type == CUDA_R_16BF ? "precision: fp32" : ""};
      return;
    }
    plan.algorithm = candidates[0].algo;
    const auto parts = cut(p);
    if (found == 1 && !parts) return;
    try {
      compare(stream, plan, p, {candidates.data(), static_cast<size_t>(found)});
    } catch (const std::bad_alloc&) {
      // The first is what the library thinks best.
    }
  }

  // Times the candidates on the real operands, and the product in two where it can be cut. Into where the result
  // will be; that of a product which is added to what is there into memory of its own.
  template <class T, class Out>
  void compare(cudaStream_t stream, Plan& plan, const Product<T, Out>& p,
               std::span<const cublasLtMatmulHeuristicResult_t> candidates) {
    const bool reads_itself = p.add || p.onto == p.c;
    Out* const result = reads_itself ? apart<Out>(p.m * p.ldc) : p.c;
    float least = std::numeric_limits<float>::infinity();
    for (const cublasLtMatmulHeuristicResult_t& each : candidates) {
      if (each.state != CUBLAS_STATUS_SUCCESS) continue;
      const float took = time(stream, [&] { return multiply(stream, plan, each.algo, p, result); });
      if (took >= least) continue;
      least = took;
      plan.algorithm = each.algo;
    }
    Product<T, Out> again = p;
    again.c = result;
    const auto parts = cut(again);
    if (!parts) return;
    const float in_two = time(stream, [&] {
      run_parts(stream, *parts);
      return status_.ok() ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
    });
    plan.is_cut = in_two < least;
    status_ = ok();  // in one it can be done
  }

  // It stays: to free it waits for all that the device does, another GPU's part of a sum as well.
  template <class Out>
  Out* apart(int64_t count) {
    const int64_t bytes = count * static_cast<int64_t>(sizeof(Out));
    if (apart_.empty() || apart_.back().size() < bytes) apart_.emplace_back(bytes);
    return reinterpret_cast<Out*>(apart_.back().data());
  }

  // What `work` takes, which is done once before, for the first time loads kernels. Infinity: it can't be done.
  template <class Work>
  float time(cudaStream_t stream, Work work) {
    constexpr float kNever = std::numeric_limits<float>::infinity();
    if (work() != CUBLAS_STATUS_SUCCESS) return kNever;
    cudaEventRecord(began_, stream);
    for (int n = 0; n < kTimings; ++n) static_cast<void>(work());
    cudaEventRecord(ended_, stream);
    float milliseconds = 0;
    if (cudaEventSynchronize(ended_) != cudaSuccess) return kNever;
    return cudaEventElapsedTime(&milliseconds, began_, ended_) == cudaSuccess ? milliseconds : kNever;
  }

  template <class T, class Out>
  void run_parts(cudaStream_t stream, const std::pair<Product<T, Out>, Product<T, Out>>& parts) {
    run_any(stream, parts.first);
    run_any(stream, parts.second);
  }

  const CublasLt lib_;
  Device& device_;
  const Fp32 fp32_;
  cublasLtHandle_t handle_ = nullptr;
  cudaEvent_t began_ = nullptr, ended_ = nullptr;
  DeviceMemory<unsigned char> workspace_;
  std::vector<DeviceMemory<unsigned char>> apart_;
  std::map<Shape, Plan> plans_;
  Status status_ = ok();
};

}  // namespace

Result<std::unique_ptr<Gemm>> Gemm::open(Device& device, Fp32 fp32) {
  TRY(const CublasLt lib, CublasLt::load());
  auto gemm = std::make_unique<CublasGemm>(lib, device, fp32);
  TRY(gemm->start());
  return std::unique_ptr<Gemm>(std::move(gemm));
}

}  // namespace dtrain::engine::cuda
