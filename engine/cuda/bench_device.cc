#include "engine/cuda/bench_device.h"

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

#include "engine/bench/ceilings.h"
#include "engine/cuda/context.h"
#include "engine/cuda/device_kernels.h"
#include "engine/norm.h"

namespace dtrain::engine::cuda {

namespace {

// Values as activations are: of zeros a product takes less power, and is faster.
template <class T>
void fill(Context& context, T* to, int64_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<T> values(static_cast<size_t>(std::min<int64_t>(count, 1 << 20)));
  for (T& value : values) value = static_cast<T>(normal(random));
  for (int64_t first = 0; first < count; first += static_cast<int64_t>(values.size())) {
    context.device().copy_to_device(values.data(), std::min<int64_t>(static_cast<int64_t>(values.size()), count - first),
                                    to + first);
  }
}
template <class T>
DeviceMemory<T> filled(Context& context, int64_t count) {
  DeviceMemory<T> memory(count);
  fill(context, memory.data(), count);
  return memory;
}

class Bench {
 public:
  Bench(const DeviceBench& options, Context& context) : options_(options), context_(context), kernels_(context) {
    for (cudaEvent_t* each : {&began_, &ended_}) {
      context_.device().check(cudaEventCreateWithFlags(each, cudaEventDefault), "make an event");
    }
  }
  ~Bench() {
    for (const cudaEvent_t each : {began_, ended_}) cudaEventDestroy(each);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  void add_all() {
    add_ceilings();
    add_products();
    add_attention();
    add_rows();
    add_updates();
  }

  Status run(const std::function<void(const DeviceRate&)>& said) {
    // The first time plans are made.
    for (Row& row : rows_) row.once();
    TRY(context_.device().wait());
    for (int round = 0; round < options_.rounds; ++round) {
      for (Row& row : rows_) TRY(measure(row));
    }
    for (Row& row : rows_) row.rate.seconds = median(row.seconds);
    const DeviceRate &product = rows_[0].rate, &copy = rows_[1].rate;
    const double most_operations = product.operations / product.seconds, most_bytes = copy.bytes / copy.seconds;
    for (Row& row : rows_) {
      DeviceRate& rate = row.rate;
      rate.share = rate.operations > 0 ? rate.operations / rate.seconds / most_operations : rate.bytes / rate.seconds / most_bytes;
      said(rate);
    }
    return ok();
  }

 private:
  using T = Bfloat16;
  struct Row {
    DeviceRate rate;
    std::function<void()> once;
    std::vector<double> seconds = {};
  };

  void add(const char* name, double operations, int64_t bytes, std::function<void()> once) {
    rows_.push_back({.rate = {.name = name, .operations = operations, .bytes = static_cast<double>(bytes)},
                     .once = std::move(once)});
  }
  // Several times at once, as long as it takes to be seen by a clock.
  Status measure(Row& row) {
    constexpr int kTimes = 5;
    const cudaStream_t stream = context_.stream();
    context_.device().check(cudaEventRecord(began_, stream), "look at the time");
    for (int i = 0; i < kTimes; ++i) row.once();
    context_.device().check(cudaEventRecord(ended_, stream), "look at the time");
    TRY(context_.device().wait());
    TRY(context_.status());
    float milliseconds = 0;
    context_.device().check(cudaEventElapsedTime(&milliseconds, began_, ended_), "look at the time");
    row.seconds.push_back(static_cast<double>(milliseconds) / 1000 / kTimes);
    return context_.status();
  }

  template <class X>
  X* memory(int64_t count) {
    if constexpr (std::is_same_v<X, T>) {
      return halves_.emplace_back(filled<T>(context_, count)).data();
    } else {
      return floats_.emplace_back(filled<float>(context_, count)).data();
    }
  }
  static double products(int64_t m, int64_t n, int64_t k) { return 2.0 * static_cast<double>(m) * static_cast<double>(n * k); }
  int64_t rows() const { return options_.samples * options_.context; }

  void add_ceilings() {
    const int64_t n = options_.largest_product;
    T *const a = memory<T>(n * n), *const b = memory<T>(n * n), *const c = memory<T>(n * n);
    add("product, square", products(n, n, n), 0, [=, this] { kernels_.gemm(n, n, n, {a, n, 1}, {b, n, 1}, c, n, false); });
    const int64_t count = options_.copied_bytes / static_cast<int64_t>(sizeof(float));
    float *const from = memory<float>(count), *const to = memory<float>(count);
    add("copy", 0, 2 * options_.copied_bytes, [=, this] { kernels_.copy(count, from, to); });
  }

  // Of a layer, and of the classifier: forward, for the gradient of what went in, and for that of the weights.
  void add_products() {
    const int64_t m = rows(), c = options_.width, ld = kernels_.row_width(options_.vocabulary);
    wide_ = memory<T>(m * 4 * c);
    other_ = memory<T>(m * 4 * c);
    narrow_ = memory<T>(m * c);
    logits_ = memory<T>(m * ld);
    T* const weights = memory<T>(std::max(4 * c * c, options_.vocabulary * c));
    float* const sums = memory<float>(std::max(4 * c * c, options_.vocabulary * c));
    const struct {
      const char *forward, *back, *weights;
      int64_t in, out;
    } layers[] = {{"qkv", "qkv, input's gradient", "qkv, weights' gradient", c, 3 * c},
                  {"projection", "projection, input's gradient", "projection, weights' gradient", c, c},
                  {"mlp up", "mlp up, input's gradient", "mlp up, weights' gradient", c, 4 * c},
                  {"mlp down", "mlp down, input's gradient", "mlp down, weights' gradient", 4 * c, c}};
    for (const auto& [forward, back, of_weights, in, out] : layers) {
      T* const x = in > c ? wide_ : narrow_;
      T* const y = x == wide_ ? other_ : wide_;
      add(forward, products(m, out, in), 0, [=, this, in = in, out = out] {
        kernels_.gemm_bias(m, out, in, {x, in, 1}, {weights, out, 1}, weights, y);
      });
      add(back, products(m, in, out), 0, [=, this, in = in, out = out] {
        kernels_.gemm(m, in, out, {y, out, 1}, {weights, 1, out}, x, in, false);
      });
      add(of_weights, products(in, out, m), 0, [=, this, in = in, out = out] {
        kernels_.gemm_tree(in, out, {&m, 1}, {x, 1, in}, {y, out, 1}, sums, out, false);
      });
    }
    const int64_t v = options_.vocabulary;
    add("classifier", products(m, v, c), 0,
        [=, this] { kernels_.gemm(m, v, c, {narrow_, c, 1}, {weights, 1, c}, logits_, ld, false); });
    add("classifier, input's gradient", products(m, c, v), 0,
        [=, this] { kernels_.gemm(m, c, v, {logits_, ld, 1}, {weights, c, 1}, narrow_, c, false); });
    add("classifier, weights' gradient", products(v, c, m), 0,
        [=, this] { kernels_.gemm_tree(v, c, {&m, 1}, {logits_, 1, ld}, {narrow_, c, 1}, sums, c, false); });
  }

  // Half of all scores: the others are not seen.
  void add_attention() {
    const AttentionShape shape{options_.context, options_.heads, options_.width};
    const int64_t samples = options_.samples, count = rows() * options_.width;
    T *const qkv = wide_, *const out = narrow_, *const dqkv = other_, *const dout = memory<T>(count);
    float *const log_sums = memory<float>(rows() * shape.heads), *const work = memory<float>(rows() * shape.heads);
    const double scores = products(rows(), options_.context, options_.width) / 2;
    const bool has_library = context_.fused_attention(shape, samples) != nullptr;
    if (has_library) {
      add("attention", 2 * scores, 0, [=, this] { kernels_.attention(shape, samples, qkv, out, log_sums); });
      add("attention, backward", 5 * scores, 0,
          [=, this] { kernels_.attention_backward(shape, samples, qkv, out, log_sums, dout, dqkv); });
    }
    add("attention, own kernels", 2 * scores, 0,
        [=, this] { cuda::attention(context_.stream(), shape, samples, qkv, out, log_sums); });
    add("attention, own kernels, backward", 5 * scores, 0, [=, this] {
      cuda::attention_backward(context_.stream(), shape, samples, qkv, out, log_sums, dout, dqkv, work);
    });
  }

  // What is bound by memory, with what has to be read and written.
  void add_rows() {
    const int64_t m = rows(), c = options_.width, count = m * c, each = static_cast<int64_t>(sizeof(T));
    T *const x = wide_, *const y = narrow_, *const parameters = memory<T>(4 * c);
    float *const mean = memory<float>(m), *const rstd = memory<float>(m), *const sums = memory<float>(8 * c);
    add("layer norm", 0, 2 * count * each, [=, this] { kernels_.layer_norm(m, c, x, parameters, parameters + c, y, mean, rstd); });
    add("layer norm, backward", 0, 4 * count * each, [=, this] {
      kernels_.layer_norm_backward(c, {&m, 1}, x, parameters, mean, rstd, y, other_, sums, sums + c, false);
    });
    add("bias' gradient", 0, 4 * count * each, [=, this] { kernels_.sum_rows(4 * c, {&m, 1}, x, sums, false); });
    add("gelu, backward", 0, 3 * 4 * count * each, [=, this] { gelu_backward(context_.stream(), 4 * count, x, other_); });
    const int64_t ld = kernels_.row_width(options_.vocabulary);
    labels_ = DeviceMemory<int32_t>(m);
    losses_ = DeviceMemory<double>(m);
    right_ = DeviceMemory<int32_t>(m);
    add("softmax and its gradient", 0, 2 * m * ld * each, [=, this] {
      softmax_cross_entropy(context_.stream(), m, options_.vocabulary, ld, labels_.data(), logits_, losses_.data(), right_.data());
    });
  }

  void add_updates() {
    const int64_t count = options_.parameters;
    float *const p = memory<float>(count), *const g = memory<float>(count), *const m = memory<float>(count);
    float* const v = memory<float>(count);
    T* const copy = memory<T>(count);
    context_.device().check(cudaMemsetAsync(v, 0, static_cast<size_t>(count) * sizeof(float), context_.stream()), "clear");
    squares_ = DeviceMemory<double>(blocks_of(count));
    scale_ = DeviceMemory<StepScale>(1);
    // Of one row, for a scale that is a number: else nothing would be updated.
    const Totals totals{.rows = 1};
    context_.device().copy_to_device(&totals, 1, context_.totals());
    add("squares of gradients", 0, 4 * count, [=, this] { block_squares(context_.stream(), count, g, squares_.data()); });
    add("AdamW", 0, (7 * 4 + 2) * count, [=, this] {
      step_scale(context_.stream(), context_.totals(), 0, scale_.data());
      update_adam(context_.stream(), count, {0, 0.9999f, 0.1f, 0.95f, 0.05f, 1, 1e-8f, -1e-4f}, scale_.data(), p, g, m, v, copy);
    });
  }

  const DeviceBench& options_;
  Context& context_;
  const DeviceKernels<T> kernels_;
  cudaEvent_t began_ = nullptr, ended_ = nullptr;
  std::vector<Row> rows_;
  std::deque<DeviceMemory<T>> halves_;
  std::deque<DeviceMemory<float>> floats_;
  T *wide_ = nullptr, *other_ = nullptr, *narrow_ = nullptr, *logits_ = nullptr;
  DeviceMemory<int32_t> labels_, right_;
  DeviceMemory<double> losses_, squares_;
  DeviceMemory<StepScale> scale_;
};

}  // namespace

Status bench_device(const DeviceBench& options, const std::function<void(const std::string& device)>& began,
                    const std::function<void(const DeviceRate&)>& said) {
  TRY(const int count, visible_devices());
  if (count == 0) return Error{Code::FailedPrecondition, "no GPU is here", ""};
  TRY(const auto context, Context::open(0, Fp32::Full));
  began(context->device().name());
  try {
    Bench bench(options, *context);
    bench.add_all();
    return bench.run(said);
  } catch (const std::bad_alloc&) {
    return Error{Code::ResourceExhausted, fmt::format("{} has not enough memory for these sizes", context->device().name()),
                 "fewer samples"};
  }
}

}  // namespace dtrain::engine::cuda
