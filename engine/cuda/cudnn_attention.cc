#ifdef DTRAIN_CUDNN

#include "engine/cuda/cudnn_attention.h"

#include <dlfcn.h>

#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include "engine/cuda/fused_attention.h"
#include "engine/library.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // where it looks for cuDNN's functions
}

namespace dtrain::engine::cuda {

namespace fe = cudnn_frontend;

namespace {

// What the frontend calls may throw where a library is missing.
template <class Call>
Status asked(std::string_view doing, Call call) {
  try {
    fe::error_t error = call();
    if (error.is_good()) return ok();
    return Error{Code::FailedPrecondition, fmt::format("{}: {}", doing, error.get_message()), ""};
  } catch (const std::exception& error) {
    return Error{Code::FailedPrecondition, fmt::format("{}: {}", doing, error.what()), ""};
  }
}

// Making a kernel takes half a second, as long as a hundred attentions of so many operations.
constexpr double kLargeOperations = 2e10;

Status build(AttentionGraphs::Graph& graph, cudnnHandle_t handle, bool all) {
  TRY(asked("check the graph of attention", [&] { return graph.validate(); }));
  TRY(asked("make the graph of attention", [&] {
    return handle == nullptr ? graph.build_operation_graph() : graph.build_operation_graph(handle);
  }));
  TRY(asked("look for kernels of attention", [&] { return graph.create_execution_plans({fe::HeurMode_t::A}); }));
  TRY(asked("choose a kernel of attention", [&] { return graph.check_support(); }));
  if (handle == nullptr) return ok();
  return asked("make the kernel of attention", [&] {
    return graph.build_plans(all ? fe::BuildPlanPolicy_t::ALL : fe::BuildPlanPolicy_t::HEURISTICS_CHOICE);
  });
}

class CudnnAttention : public FusedAttention {
 public:
  CudnnAttention(Device& device, cudnnHandle_t handle, int chip) : device_(device), handle_(handle), chip_(chip) {}
  ~CudnnAttention() override { static_cast<void>(fe::detail::destroy_handle(handle_)); }

  const Status& takes(const AttentionShape& shape, int64_t samples) override {
    const Key key{shape.context, shape.heads, shape.width, samples};
    if (const auto found = all_.find(key); found != all_.end()) return found->second.taken;
    if (status_.ok()) status_ = device_.settle();
    if (!status_.ok()) return status_;
    AttentionGraphs graphs = AttentionGraphs::of(shape, samples, chip_);
    Status taken = graphs.check(handle_);
    const bool times = graphs.is_large;
    return all_.emplace(key, Taken{std::move(graphs), std::move(taken), times, times}).first->second.taken;
  }
  int64_t workspace(const AttentionShape& shape, int64_t samples) override { return taken(shape, samples).graphs.workspace; }

  void forward(cudaStream_t stream, const AttentionShape& shape, int64_t samples, const Bfloat16* qkv, Bfloat16* out,
               float* log_sums, void* work) override {
    Tensors tensors = projections(shape, qkv, AttentionGraphs::kQuery);
    tensors[AttentionGraphs::kOut] = out;
    tensors[AttentionGraphs::kLogSums] = log_sums;
    Taken& taken = this->taken(shape, samples);
    run(stream, *taken.graphs.forward, taken.times_forward, tensors, work);
  }
  void backward(cudaStream_t stream, const AttentionShape& shape, int64_t samples, const Bfloat16* qkv,
                const Bfloat16* out, const float* log_sums, const Bfloat16* dout, Bfloat16* dqkv,
                void* work) override {
    Tensors tensors = projections(shape, qkv, AttentionGraphs::kQuery);
    tensors.merge(projections(shape, dqkv, AttentionGraphs::kQueryGradient));
    tensors[AttentionGraphs::kOut] = const_cast<Bfloat16*>(out);
    tensors[AttentionGraphs::kLogSums] = const_cast<float*>(log_sums);
    tensors[AttentionGraphs::kOutGradient] = const_cast<Bfloat16*>(dout);
    Taken& taken = this->taken(shape, samples);
    run(stream, *taken.graphs.backward, taken.times_backward, tensors, work);
  }

  const Status& status() const override { return status_; }

 private:
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t>;
  using Tensors = std::unordered_map<int64_t, void*>;

  struct Taken {
    AttentionGraphs graphs;
    Status taken;
    bool times_forward, times_backward;  // the next time
  };

  Taken& taken(const AttentionShape& shape, int64_t samples) {
    return all_.at({shape.context, shape.heads, shape.width, samples});
  }
  // Query, key and value side by side in a row.
  static Tensors projections(const AttentionShape& shape, const Bfloat16* rows, int64_t first) {
    Tensors tensors;
    for (int64_t i = 0; i < 3; ++i) tensors[first + i] = const_cast<Bfloat16*>(rows) + i * shape.width;
    return tensors;
  }
  void run(cudaStream_t stream, AttentionGraphs::Graph& graph, bool& times, Tensors& tensors, void* work) {
    if (!status_.ok()) return;
    if (fe::detail::set_stream(handle_, stream) != CUDNN_STATUS_SUCCESS) {
      status_ = Error{Code::Internal, "cuDNN took no stream", ""};
      return;
    }
    if (std::exchange(times, false)) {
      status_ = device_.settle();
      if (!status_.ok()) return;
      // Where no kernel can be timed it stays the first.
      static_cast<void>(asked("time attention", [&] { return graph.autotune(handle_, tensors, work); }));
    }
    status_ = asked("attention", [&] { return graph.execute(handle_, tensors, work); });
  }

  Device& device_;
  const cudnnHandle_t handle_;
  const int chip_;
  std::map<Key, Taken> all_;
  Status status_ = ok();
};

}  // namespace

Status load_cudnn() {
  static const Status loaded = []() -> Status {
    void* handle = nullptr;
    for (const char* name : {"libcudnn.so.9", "libcudnn.so"}) {
      if (handle == nullptr) handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (handle == nullptr) {
      return Error{Code::FailedPrecondition, fmt::format("cuDNN can't be loaded: {}", ::dlerror()),
                   "install cuDNN 9, or set LD_LIBRARY_PATH to where it is"};
    }
    fe::cudnn_dlhandle = handle;
    // The frontend calls CUDA's runtime in a library of its own, this program has it in itself. What is missing would
    // show when a graph runs.
    return asked("CUDA's runtime, libcudart.so.13", [] {
      static_cast<void>(fe::detail::get_cuda_runtime_version());
      return fe::error_t{};
    });
  }();
  return loaded;
}

AttentionGraphs AttentionGraphs::of(const AttentionShape& shape, int64_t samples, int chip,
                                    const std::shared_ptr<fe::DeviceProperties>& device) {
  const int64_t heads = shape.heads, head = shape.width / shape.heads, context = shape.context;
  const float scale = 1 / std::sqrt(static_cast<float>(head));
  const auto make = [&] {
    auto graph = std::make_shared<Graph>();
    graph->set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    graph->set_sm_version(chip);
    if (device != nullptr) graph->set_device_properties(device);
    return graph;
  };
  // [sample][head][row][column], as they lie in rows of so many elements.
  const std::vector<int64_t> size{samples, heads, context, head};
  const auto strides = [&](int64_t row) { return std::vector<int64_t>{context * row, head, row, 1}; };
  const auto given = [&](Graph& graph, Tensor which, int64_t row) {
    return graph.tensor(fe::graph::Tensor_attributes().set_uid(which).set_dim(size).set_stride(strides(row)));
  };
  const auto wanted = [&](auto& tensor, int64_t which, int64_t row) {
    tensor->set_output(true).set_uid(which).set_dim(size).set_stride(strides(row));
  };
  const int64_t beside = 3 * shape.width;
  const std::vector<int64_t> sums_size{samples, heads, context, 1}, sums_strides{heads * context, context, 1, 1};

  AttentionGraphs graphs;
  graphs.is_large = 2 * static_cast<double>(samples * context) * static_cast<double>(context * shape.width) >= kLargeOperations;
  graphs.forward = make();
  {
    Graph& graph = *graphs.forward;
    const auto q = given(graph, kQuery, beside), k = given(graph, kKey, beside), v = given(graph, kValue, beside);
    auto [out, log_sums] = graph.sdpa(q, k, v,
                                      fe::graph::SDPA_attributes()
                                          .set_name("attention")
                                          .set_generate_stats(true)
                                          .set_causal_mask(true)
                                          .set_attn_scale(scale));
    wanted(out, kOut, shape.width);
    log_sums->set_output(true).set_uid(kLogSums).set_data_type(fe::DataType_t::FLOAT).set_dim(sums_size).set_stride(sums_strides);
  }
  graphs.backward = make();
  {
    Graph& graph = *graphs.backward;
    const auto q = given(graph, kQuery, beside), k = given(graph, kKey, beside), v = given(graph, kValue, beside);
    const auto out = given(graph, kOut, shape.width), dout = given(graph, kOutGradient, shape.width);
    const auto log_sums = graph.tensor(fe::graph::Tensor_attributes()
                                           .set_uid(kLogSums)
                                           .set_data_type(fe::DataType_t::FLOAT)
                                           .set_dim(sums_size)
                                           .set_stride(sums_strides));
    auto gradients = graph.sdpa_backward(q, k, v, out, dout, log_sums,
                                         fe::graph::SDPA_backward_attributes()
                                             .set_name("attention backward")
                                             .set_causal_mask(true)
                                             .set_attn_scale(scale));
    for (size_t i = 0; i < 3; ++i) wanted(gradients[i], kQueryGradient + static_cast<int64_t>(i), beside);
  }
  return graphs;
}

Status AttentionGraphs::check(cudnnHandle_t handle) {
  for (const auto& graph : {forward, backward}) {
    TRY(build(*graph, handle, is_large));
    if (handle == nullptr) continue;
    int64_t bytes = 0;
    TRY(asked("ask how much attention needs", [&] {
      if (!is_large) return graph->get_workspace_size(bytes);
      bytes = graph->get_autotune_workspace_size();
      return fe::error_t{};
    }));
    workspace = std::max(workspace, bytes);
  }
  return ok();
}

Result<std::unique_ptr<FusedAttention>> FusedAttention::open(Device& of) {
  int device = 0, major = 0, minor = 0;
  const bool known = cudaGetDevice(&device) == cudaSuccess &&
                     cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
                     cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess;
  if (!known || major < 8) return Error{Code::FailedPrecondition, "before compute capability 8.0 there is no bf16", ""};
  TRY(load_cudnn());
  cudnnHandle_t handle = nullptr;
  if (const cudnnStatus_t status = fe::detail::create_handle(&handle); status != CUDNN_STATUS_SUCCESS) {
    return Error{Code::FailedPrecondition, fmt::format("cuDNN does not start: {}", fe::detail::get_error_string(status)), ""};
  }
  return std::unique_ptr<FusedAttention>(std::make_unique<CudnnAttention>(of, handle, 10 * major + minor));
}

}  // namespace dtrain::engine::cuda

#else

#include "engine/cuda/fused_attention.h"

namespace dtrain::engine::cuda {

Result<std::unique_ptr<FusedAttention>> FusedAttention::open(Device&) {
  return Error{Code::FailedPrecondition, "dtrain-engine was built without cuDNN", ""};
}

}  // namespace dtrain::engine::cuda

#endif
