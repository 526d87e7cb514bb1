// The operations that models are made of, on the CPU: the table of kernels.h, and what is put together
// from it. cuda::DeviceKernels has the same for a GPU.
#pragma once

#include <algorithm>

#include "engine/buffer.h"
#include "engine/gradient_taker.h"
#include "engine/kernels/crew.h"
#include "engine/kernels/kernels.h"
#include "engine/kernels/scratch.h"
#include "engine/models/host_losses.h"
#include "engine/models/host_token_gradient.h"

namespace dtrain::engine {

template <class V>
class HostKernels : public Kernels<V> {
  using Base = Kernels<V>;

 public:
  using Value = V;
  using Sum = V;
  template <class X>
  using Memory = Buffer<X>;
  using Losses = HostLosses<V>;
  using TokenGradient = HostTokenGradient<V>;

  // `crew`: those who compute the fully connected layers' operations together. `taker`: of their gradients, which are
  // then not written. Both outlive this. `rows_of_sample`: as kernels() wants it.
  explicit HostKernels(Crew* crew = nullptr, int64_t rows_of_sample = 1, GradientTaker<V>* taker = nullptr)
      : Base(kernels<V>(rows_of_sample)), crew_(crew), taker_(taker) {}

  // How far apart rows of n lie that are read as a matrix: n or more.
  static int64_t row_width(int64_t n) { return n; }
  // How many of these blocks of images go through a layer at once: one, while it is in the cache.
  static int64_t blocks_at_once(int64_t) { return 1; }
  static int64_t most_leaves() { return int64_t{1} << (kTreeLevels - 1); }

  void copy(int64_t count, const V* from, V* to) const { std::copy_n(from, count, to); }
  void clear(int64_t count, V* values) const { std::fill_n(values, count, V(0)); }

  void gemm(int64_t m, int64_t n, int64_t k, GemmA<V> a, GemmB<V> b, V* c, int64_t ldc, bool add) const {
    Base::gemm(m, n, k, worth_it(a, n), b, c, ldc, add, crew_);
  }
  void gemm_tree(int64_t m, int64_t n, Leaves leaves, GemmA<V> a, GemmB<V> b, V* c, int64_t ldc, bool add) const {
    if (a.common.value != 0 && !Base::background.pays_in_gradient(a.common.share, leaves.shortest)) a.common = {};
    Base::gemm_tree(m, n, leaves, a, b, c, ldc, add, crew_, taker_);
  }
  void sum_rows(int64_t n, Leaves leaves, const V* x, V* out, bool add) const {
    Crew::share(crew_, n, Crew::kColumns, Crew::kColumns, [&](Range columns) {
      const int64_t count = columns.size();
      V* const place = out + columns.begin;
      V* const to = taker_ == nullptr ? place : scratch<V>(Scratch::Panel, count);
      Base::sum_rows(count, n, leaves, x + columns.begin, to, add);
      if (taker_ != nullptr) taker_->take(place, 0, 1, count, to, 0);
    });
  }

  // ---- C [m][n] = A B + bias, and what follows at once
  void gemm_bias(int64_t m, int64_t n, int64_t k, GemmA<V> a, GemmB<V> b, const V* bias, V* c) const {
    Base::gemm_then(m, n, k, worth_it(a, n), b, c, n, {.bias = bias}, crew_);
  }
  void gemm_bias_relu(int64_t m, int64_t n, int64_t k, GemmA<V> a, GemmB<V> b, const V* bias, V* c) const {
    Base::gemm_then(m, n, k, worth_it(a, n), b, c, n, {.bias = bias, .relu = true}, crew_);
  }
  // y = gelu(A B + bias); `kept` gets what gemm_gelu_backward() wants again: here the slope of gelu.
  void gemm_bias_gelu(int64_t m, int64_t n, int64_t k, GemmA<V> a, GemmB<V> b, const V* bias, V* kept,
                      V* y) const {
    Base::gemm_then(m, n, k, a, b, y, n, {.bias = bias, .gelu_slope = kept}, crew_);
  }
  // c = onto + A B + bias
  void gemm_bias_onto(int64_t m, int64_t n, int64_t k, GemmA<V> a, GemmB<V> b, const V* bias, const V* onto,
                      V* c) const {
    Base::gemm_then(m, n, k, a, b, c, n, {.plus = onto, .bias = bias}, crew_);
  }
  // c = A B, zero where y isn't positive
  void gemm_relu_backward(int64_t m, int64_t n, int64_t k, GemmA<V> a, GemmB<V> b, const V* y, V* c) const {
    Base::gemm_then(m, n, k, a, b, c, n, {.where = y}, crew_);
  }
  // c = A B, times the slope of gelu
  void gemm_gelu_backward(int64_t m, int64_t n, int64_t k, GemmA<V> a, GemmB<V> b, const V* kept, V* c) const {
    Base::gemm_then(m, n, k, a, b, c, n, {.times = kept}, crew_);
  }

  // `out` is what attention() gave.
  void attention_backward(const AttentionShape& shape, int64_t samples, const V* qkv, const V* /*out*/,
                          const V* log_sums, const V* dout, V* dqkv) const {
    Base::attention_backward(shape, samples, qkv, log_sums, dout, dqkv);
  }

  // ---- embeddings, of a slice of the vocabulary: zeros where the token is another's
  void embed_slice(int64_t rows, int64_t n, const int32_t* ids, Range vocabulary, const V* tokens, V* x) const {
    for (int64_t row = 0; row < rows; ++row, x += n) {
      const int64_t token = ids[row] - vocabulary.begin;
      const bool is_here = token >= 0 && token < vocabulary.size();
      if (is_here) copy(n, tokens + token * n, x);
      if (!is_here) clear(n, x);
    }
  }
  void add_positions(int64_t rows, int64_t n, int64_t context, const V* positions, V* x) const {
    for (int64_t row = 0; row < rows; ++row, x += n) Base::add_to(n, positions + row % context * n, x);
  }

  // ---- images, in blocks that lie one after the other
  void conv_gradients(const ConvShape& shape, Leaves leaves, const V* in, const V* dout, V* dfilters, V* dbias, bool add) const {
    Base::conv_filter_gradient(shape, leaves, in, dout, dfilters, add);
    Base::conv_bias_gradient(shape, leaves, dout, dbias, add);
  }
  void conv(const ConvShape& shape, int64_t blocks, const V* in, const V* ready, V* out) const {
    for (int64_t b = 0; b < blocks; ++b) {
      Base::conv(shape, in + b * shape.in_size(), ready, out + b * shape.out_size());
    }
  }
  void bias_relu_pool(const ConvShape& shape, int64_t blocks, const V* x, const V* bias, V* pooled,
                      uint8_t* which) const {
    const int64_t each = shape.pool == 1 ? 0 : shape.pooled_size();
    for (int64_t b = 0; b < blocks; ++b) {
      Base::bias_relu_pool(shape, x + b * shape.out_size(), bias, pooled + b * shape.pooled_size(), which + b * each);
    }
  }
  void pool_relu_backward(const ConvShape& shape, int64_t blocks, const V* pooled, const uint8_t* which,
                          const V* dpooled, V* dx) const {
    const int64_t each = shape.pool == 1 ? 0 : shape.pooled_size();
    for (int64_t b = 0; b < blocks; ++b) {
      Base::pool_relu_backward(shape, pooled + b * shape.pooled_size(), which + b * each,
                               dpooled + b * shape.pooled_size(), dx + b * shape.dout_size());
    }
  }
  // The last block may lack some images: zeros.
  void rows_to_blocks(int64_t images, int64_t pixels, const V* rows, V* blocks) const {
    for (int64_t first = 0; first < images; first += kBlockImages) {
      Base::rows_to_block(std::min<int64_t>(kBlockImages, images - first), pixels, rows + first * pixels,
                          blocks + first * pixels);
    }
  }
  void blocks_to_rows(int64_t images, int64_t pixels, const V* blocks, V* rows) const {
    for (int64_t first = 0; first < images; first += kBlockImages) {
      Base::block_to_rows(std::min<int64_t>(kBlockImages, images - first), pixels, blocks + first * pixels,
                          rows + first * pixels);
    }
  }
  // Each image in a frame of `padding` zeros, which is there already. `work` has room for a block.
  void rows_to_framed_blocks(int64_t images, int64_t channels, int64_t height, int64_t width, int64_t padding,
                             const V* rows, V* blocks, V* work) const {
    const int64_t pixels = channels * height * width;
    const int64_t row = width * kBlockImages, framed = row + 2 * padding * kBlockImages;
    const int64_t framed_height = height + 2 * padding;
    for (int64_t first = 0; first < images; first += kBlockImages) {
      Base::rows_to_block(std::min<int64_t>(kBlockImages, images - first), pixels, rows + first * pixels, work);
      for (int64_t c = 0; c < channels; ++c) {
        for (int64_t y = 0; y < height; ++y) {
          copy(row, work + (c * height + y) * row,
               blocks + (c * framed_height + y + padding) * framed + padding * kBlockImages);
        }
      }
      blocks += channels * framed_height * framed;
    }
  }
  // [out][in][y][x] -> [in][out][-y][-x]
  void flip_filters(const ConvShape& shape, const V* filters, V* flipped) const {
    const int64_t taps = shape.kernel * shape.kernel;
    for (int64_t o = 0; o < shape.out_channels; ++o) {
      for (int64_t i = 0; i < shape.in_channels; ++i, filters += taps) {
        V* to = flipped + (i * shape.out_channels + o) * taps;
        for (int64_t t = 0; t < taps; ++t) to[taps - 1 - t] = filters[t];
      }
    }
  }

 private:
  // Without the background, where that is not to be left out.
  GemmA<V> worth_it(GemmA<V> a, int64_t columns) const {
    if (a.common.value != 0 && !Base::background.pays(a.common.share, columns)) a.common = {};
    return a;
  }

  Crew* crew_;
  GradientTaker<V>* taker_;
};

}  // namespace dtrain::engine
