// The operations that models are made of, on a GPU: what HostKernels is for the CPU. Everything is
// enqueued on the participant's stream. A batch is one leaf here: sums are in a fixed order, but not by
// the tree that makes the CPU's the same for any number of workers.
#pragma once

#include "engine/cuda/context.h"
#include "engine/cuda/device_losses.h"
#include "engine/cuda/device_token_gradient.h"
#include "engine/cuda/kernels.h"
#include "engine/models/model.h"

namespace dtrain::engine::cuda {

template <class V>
class DeviceKernels {
 public:
  using Value = V;
  using Sum = cuda::Sum<V>;
  template <class X>
  using Memory = DeviceMemory<X>;
  using Losses = DeviceLosses<V>;
  using TokenGradient = DeviceTokenGradient<V>;

  explicit DeviceKernels(Context& context) : context_(&context) {}
  Context& context() const { return *context_; }
  cudaStream_t stream() const { return context_->stream(); }

  // Tensor cores want rows that begin at multiples of 16 bytes; whole tiles are faster still.
  static int64_t row_width(int64_t n) { return (n + kTile - 1) / kTile * kTile; }
  static int64_t blocks_at_once(int64_t all) { return std::max<int64_t>(1, all); }
  static int64_t most_leaves() { return 1; }

  template <class X>
  void copy(int64_t count, const X* from, X* to) const {
    context_->device().check(cudaMemcpyAsync(to, from, static_cast<size_t>(count) * sizeof(X),
                                             cudaMemcpyDeviceToDevice, stream()),
                             "copy");
  }
  template <class X>
  void clear(int64_t count, X* values) const {
    context_->device().check(cudaMemsetAsync(values, 0, static_cast<size_t>(count) * sizeof(X), stream()), "clear");
  }

  // ---- products
  void gemm(int64_t m, int64_t n, int64_t k, GemmA<V> a, GemmB<V> b, V* c, int64_t ldc, bool add) const {
    run<V>({.m = m, .n = n, .k = k, .a = a, .b = b, .c = c, .ldc = ldc, .add = add});
  }
  void gemm_tree(int64_t m, int64_t n, Leaves leaves, GemmA<V> a, GemmB<V> b, Sum* c, int64_t ldc,
                 bool add) const {
    run<Sum>({.m = m, .n = n, .k = rows_of(leaves), .a = a, .b = b, .c = c, .ldc = ldc, .add = add});
  }
  void gemm_bias(int64_t m, int64_t n, int64_t k, GemmA<V> a, GemmB<V> b, const V* bias, V* c) const {
    if constexpr (kFuses) {
      run<V>({.m = m, .n = n, .k = k, .a = a, .b = b, .c = c, .ldc = n, .bias = bias});
    } else {
      gemm(m, n, k, a, b, c, n, false);
      add_bias(m, n, bias, c);
    }
  }
  void gemm_bias_relu(int64_t m, int64_t n, int64_t k, GemmA<V> a, GemmB<V> b, const V* bias, V* c) const {
    // Not by cuBLASLt, for which what is no number is 0 after a ReLU.
    gemm(m, n, k, a, b, c, n, false);
    add_bias_relu(m, n, bias, c);
  }
  void gemm_bias_gelu(int64_t m, int64_t n, int64_t k, GemmA<V> a, GemmB<V> b, const V* bias, V* x, V* y) const {
    if constexpr (kFuses) {
      // Weights that reach too far are summed over in two: halves(). What goes into the gelu is there only then.
      if (n % kKeptUnit == 0 && reach(k, b.row_stride, n, b.column_stride) <= kMostReach) {
        return run<V>({.m = m, .n = n, .k = k, .a = a, .b = b, .c = y, .ldc = n, .bias = bias, .after = After::Gelu,
                       .kept = x});
      }
    }
    gemm(m, n, k, a, b, x, n, false);
    cuda::add_bias_gelu(stream(), m, n, bias, x, y);
  }
  void gemm_bias_onto(int64_t m, int64_t n, int64_t k, GemmA<V> a, GemmB<V> b, const V* bias, const V* onto,
                      V* c) const {
    if constexpr (kFuses) {
      run<V>({.m = m, .n = n, .k = k, .a = a, .b = b, .c = c, .ldc = n, .onto = onto, .bias = bias});
    } else {
      run<V>({.m = m, .n = n, .k = k, .a = a, .b = b, .c = c, .ldc = n, .onto = onto});
      add_bias(m, n, bias, c);
    }
  }
  void gemm_relu_backward(int64_t m, int64_t n, int64_t k, GemmA<V> a, GemmB<V> b, const V* y, V* c) const {
    gemm(m, n, k, a, b, c, n, false);
    relu_backward(m * n, y, c);
  }
  void gemm_gelu_backward(int64_t m, int64_t n, int64_t k, GemmA<V> a, GemmB<V> b, const V* x, V* c) const {
    if constexpr (kFuses) {
      if (n % kKeptUnit == 0) {
        return run<V>({.m = m, .n = n, .k = k, .a = a, .b = b, .c = c, .ldc = n, .after = After::GeluBackward,
                       .kept = const_cast<V*>(x)});
      }
    }
    gemm(m, n, k, a, b, c, n, false);
    cuda::gelu_backward(stream(), m * n, x, c);
  }

  // ---- rows
  void add_bias(int64_t rows, int64_t n, const V* bias, V* x) const { cuda::add_bias(stream(), rows, n, bias, x); }
  void add_bias_relu(int64_t rows, int64_t n, const V* bias, V* x) const {
    cuda::add_bias_relu(stream(), rows, n, bias, x);
  }
  void relu_backward(int64_t count, const V* y, V* dy) const { cuda::relu_backward(stream(), count, y, dy); }
  template <class X>
  void add_to(int64_t count, const X* x, X* y) const {
    cuda::add_to(stream(), count, x, y);
  }
  void sum_rows(int64_t n, Leaves leaves, const V* x, Sum* out, bool add) const {
    cuda::sum_rows(stream(), rows_of(leaves), n, x, out, add, context_->work<Sum>(row_workspace(n)));
  }
  void layer_norm(int64_t rows, int64_t n, const V* x, const V* gain, const V* bias, V* y, Sum* mean,
                  Sum* rstd) const {
    cuda::layer_norm(stream(), rows, n, x, gain, bias, y, mean, rstd);
  }
  void layer_norm_backward(int64_t n, Leaves leaves, const V* x, const V* gain, const Sum* mean, const Sum* rstd,
                           const V* dy, V* dx, Sum* dgain, Sum* dbias, bool add) const {
    cuda::layer_norm_backward(stream(), rows_of(leaves), n, x, gain, mean, rstd, dy, dx, dgain, dbias, add,
                              context_->work<Sum>(row_workspace(n)));
  }

  // ---- attention
  void attention(const AttentionShape& shape, int64_t samples, const V* qkv, V* out, Sum* log_sums) const {
    if constexpr (kFuses) {
      if (const int64_t most = samples_at_once(shape); samples > most) {
        const int64_t rows = most * shape.context;
        attention(shape, most, qkv, out, log_sums);
        return attention(shape, samples - most, qkv + rows * 3 * shape.width, out + rows * shape.width,
                         log_sums + rows * shape.heads);
      }
      if (FusedAttention* fused = context_->fused_attention(shape, samples)) {
        return fused->forward(stream(), shape, samples, qkv, out, log_sums, work_of(*fused, shape, samples));
      }
    }
    cuda::attention(stream(), shape, samples, qkv, out, log_sums);
  }
  void attention_backward(const AttentionShape& shape, int64_t samples, const V* qkv, const V* out,
                          const Sum* log_sums, const V* dout, V* dqkv) const {
    if constexpr (kFuses) {
      if (const int64_t most = samples_at_once(shape); samples > most) {
        const int64_t rows = most * shape.context, narrow = rows * shape.width;
        attention_backward(shape, most, qkv, out, log_sums, dout, dqkv);
        return attention_backward(shape, samples - most, qkv + 3 * narrow, out + narrow, log_sums + rows * shape.heads,
                                  dout + narrow, dqkv + 3 * narrow);
      }
      if (FusedAttention* fused = context_->fused_attention(shape, samples)) {
        return fused->backward(stream(), shape, samples, qkv, out, log_sums, dout, dqkv, work_of(*fused, shape, samples));
      }
    }
    cuda::attention_backward(stream(), shape, samples, qkv, out, log_sums, dout, dqkv,
                             context_->work<Sum>(samples * shape.context * shape.heads));
  }

  // ---- embeddings
  void embed(int64_t rows, int64_t n, int64_t context, const int32_t* ids, const V* tokens, const V* positions,
             V* x) const {
    cuda::embed(stream(), rows, n, context, ids, 0, std::numeric_limits<int32_t>::max(), tokens, positions, x);
  }
  void embed_slice(int64_t rows, int64_t n, const int32_t* ids, Range vocabulary, const V* tokens, V* x) const {
    cuda::embed<V>(stream(), rows, n, 1, ids, vocabulary.begin, vocabulary.size(), tokens, nullptr, x);
  }
  void add_positions(int64_t rows, int64_t n, int64_t context, const V* positions, V* x) const {
    cuda::add_positions(stream(), rows, n, context, positions, x);
  }
  void position_gradient(int64_t n, int64_t context, Leaves leaves, const V* dx, Sum* out, bool add) const {
    cuda::position_gradient(stream(), rows_of(leaves), n, context, dx, out, add);
  }

  // ---- images
  static int64_t filter_room(const ConvShape&) { return 0; }
  static const V* ready_filters(const ConvShape&, const V* filters, V* /*room*/) { return filters; }
  void conv(const ConvShape& shape, int64_t blocks, const V* in, const V* filters, V* out) const {
    cuda::conv(stream(), shape, blocks, in, filters, out);
  }
  void conv_gradients(const ConvShape& shape, Leaves leaves, const V* in, const V* dout, Sum* dfilters, Sum* dbias,
                      bool add) const {
    const int64_t blocks = rows_of(leaves);
    cuda::conv_gradients(stream(), shape, blocks, in, dout, dfilters, dbias, add,
                         context_->work<Sum>(conv_gradients_workspace(shape, blocks)));
  }
  void bias_relu_pool(const ConvShape& shape, int64_t blocks, const V* x, const V* bias, V* pooled,
                      uint8_t* which) const {
    cuda::bias_relu_pool(stream(), shape, blocks, x, bias, pooled, which);
  }
  void pool_relu_backward(const ConvShape& shape, int64_t blocks, const V* pooled, const uint8_t* which,
                          const V* dpooled, V* dx) const {
    cuda::pool_relu_backward(stream(), shape, blocks, pooled, which, dpooled, dx);
  }
  void rows_to_blocks(int64_t images, int64_t pixels, const V* rows, V* blocks) const {
    cuda::rows_to_blocks(stream(), images, pixels, rows, blocks);
  }
  void blocks_to_rows(int64_t images, int64_t pixels, const V* blocks, V* rows) const {
    cuda::blocks_to_rows(stream(), images, pixels, blocks, rows);
  }
  void rows_to_framed_blocks(int64_t images, int64_t channels, int64_t height, int64_t width, int64_t padding,
                             const V* rows, V* blocks, V* /*work*/) const {
    cuda::rows_to_framed_blocks(stream(), images, channels, height, width, padding, rows, blocks);
  }
  void flip_filters(const ConvShape& shape, const V* filters, V* flipped) const {
    cuda::flip_filters(stream(), shape, filters, flipped);
  }

 private:
  // cuBLASLt does what follows a product for these, and cuDNN attention.
  static constexpr bool kFuses = std::is_same_v<V, Bfloat16>;
  static constexpr int64_t kTile = 64;

  void* work_of(FusedAttention& fused, const AttentionShape& shape, int64_t samples) const {
    return context_->work<unsigned char>(fused.workspace(shape, samples));
  }
  static int64_t rows_of(Leaves leaves) { return leaves.ends[leaves.count - 1]; }
  template <class Out>
  void run(const Product<V, Out>& product) const {
    context_->gemm().run(stream(), product);
  }

  Context* context_;
};

}  // namespace dtrain::engine::cuda
