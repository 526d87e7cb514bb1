// The CPU's operations, in the best version that this machine can run. All matrices are row-major.
//
// What sums over samples takes Leaves and sums by the balanced binary tree over them, so that results
// are the same bits however a batch is spread over threads and processes (leaves.h).
#pragma once

#include <cstdint>

#include "engine/kernels/left_out.h"

namespace dtrain::engine {

class Crew;  // crew.h
class Trial;  // trial.h
template <class T>
class GradientTaker;  // engine/gradient_taker.h

// Rows of a batch by leaf: leaf l is rows [l ? ends[l - 1] : 0, ends[l]); some may be empty. `count` is
// a power of two.
struct Leaves {
  const int64_t* ends = nullptr;
  int count = 0;
  // Rows of a leaf that goes at once, about: what all who share the batch say alike, and choose by. 0 where a sample has
  // many rows anyway.
  int64_t shortest = 0;
};
inline constexpr int kTreeLevels = 8;  // up to 128 leaves

// A value that so many elements of a matrix have that it may pay to leave them out of products: zero where it has gone through a
// ReLU, the background in images. Leaving out what is not zero changes bits: of this all who share a batch say the same.
template <class T>
struct Common {
  T value{};
  float share = 0;   // of all elements, about; 0: nothing is known
};

// Element (m, k) of A is data[m row_stride + k column_stride]; B's (k, n) likewise.
template <class T>
struct GemmA {
  const T* data;
  int64_t row_stride, column_stride;
  Common<T> common = {};
  Trial* trial = nullptr;   // of the product, whether to leave zeros out; without one they are left out if there may be any
};
template <class T>
struct GemmB {
  const T* data;
  int64_t row_stride, column_stride;
  float zeros = 0;   // share of its elements, about, that a ReLU has made zero; 0: nothing is known
};

// What becomes of an element of a product once its sum is there, in this order. Rows of all that is named
// lie as far apart as C's.
template <class T>
struct Then {
  const T* plus = nullptr;  // [M][N]: is added
  const T* bias = nullptr;  // [N]: is added
  bool relu = false;
  const T* times = nullptr;  // [M][N]: is multiplied by
  const T* where = nullptr;  // [M][N]: becomes zero where this isn't greater than zero
  T* gelu_slope = nullptr;  // [M][N]: C gets its gelu, and this the slope there
};

struct AttentionShape {
  int64_t context, heads, width;
};

inline constexpr int kBlockImages = 8;

// A valid convolution of square filters, stride 1, on blocks of images (pixel.h). The gradient of
// the output may lie in a frame of `dout_padding` zeros, so that the gradient of the input is a
// convolution of it.
struct ConvShape {
  int64_t in_channels, out_channels, kernel, in_height, in_width, dout_padding;
  int64_t pool = 2;  // of so many by so many values the largest is kept: 2, or 1, which keeps all
  constexpr int64_t out_height() const { return in_height - kernel + 1; }
  constexpr int64_t out_width() const { return in_width - kernel + 1; }
  constexpr int64_t dout_height() const { return out_height() + 2 * dout_padding; }
  constexpr int64_t dout_width() const { return out_width() + 2 * dout_padding; }
  // What an odd size leaves over is not pooled.
  constexpr int64_t pooled_height() const { return out_height() / pool; }
  constexpr int64_t pooled_width() const { return out_width() / pool; }
  // Elements of a block.
  constexpr int64_t in_size() const { return in_channels * in_height * in_width * kBlockImages; }
  constexpr int64_t out_size() const { return out_channels * out_height() * out_width() * kBlockImages; }
  constexpr int64_t dout_size() const { return out_channels * dout_height() * dout_width() * kBlockImages; }
  constexpr int64_t pooled_size() const {
    return out_channels * pooled_height() * pooled_width() * kBlockImages;
  }
};

// `add`: to what is there, else it is overwritten. Gradients are sums over rows, by the tree.
template <class T>
struct Kernels {
  const char* isa;
  BackgroundShares background = {};

  // ---- matrices: gemm_kernel.h
  // C (ldc) = A[M, K] B[K, N]. C must not overlap A or B. `crew`: those who compute it together, each some of C's
  // columns; or nullptr.
  void (*gemm)(int64_t m, int64_t n, int64_t k, GemmA<T> a, GemmB<T> b, T* c, int64_t ldc, bool add, Crew* crew);
  void (*gemm_then)(int64_t m, int64_t n, int64_t k, GemmA<T> a, GemmB<T> b, T* c, int64_t ldc,
                    const Then<T>& then, Crew* crew);
  // The same, K being the rows of a batch. With a `taker` C is its place, and not written.
  void (*gemm_tree)(int64_t m, int64_t n, Leaves leaves, GemmA<T> a, GemmB<T> b, T* c, int64_t ldc,
                    bool add, Crew* crew, GradientTaker<T>* taker);

  // ---- rows of n: row_kernels.h
  void (*add_bias)(int64_t rows, int64_t n, const T* bias, T* x);
  void (*add_bias_relu)(int64_t rows, int64_t n, const T* bias, T* x);
  void (*relu_backward)(int64_t count, const T* y, T* dy);  // dy becomes dx
  // x = (value - mean) factor
  void (*standardise_bytes)(int64_t count, const uint8_t* values, T mean, T factor, T* x);
  void (*standardise_floats)(int64_t count, const float* values, T mean, T factor, T* x);
  void (*add_to)(int64_t count, const T* x, T* y);
  // Of n columns of rows that lie `ld` apart.
  void (*sum_rows)(int64_t n, int64_t ld, Leaves leaves, const T* x, T* out, bool add);
  void (*layer_norm)(int64_t rows, int64_t n, const T* x, const T* gain, const T* bias, T* y, T* mean,
                     T* rstd);
  // Adds to dx.
  void (*layer_norm_backward)(int64_t n, Leaves leaves, const T* x, const T* gain, const T* mean,
                              const T* rstd, const T* dy, T* dx, T* dgain, T* dbias, bool add);
  // logits become the gradients of the losses. Returns how many labels have the largest logit, and the first
  // of those that are as large.
  int64_t (*softmax_cross_entropy)(int64_t rows, int64_t n, const int32_t* labels, T* logits,
                                   double* losses);
  // x[row] = tokens[ids[row]] + positions[row % context]
  void (*embed)(int64_t rows, int64_t n, int64_t context, const int32_t* ids, const T* tokens,
                const T* positions, T* x);
  // `leaves` counts samples of `context` rows.
  void (*position_gradient)(int64_t n, int64_t context, Leaves leaves, const T* dx, T* out, bool add);

  // ---- attention: attention_kernel.h. qkv [samples context][3 width], out [samples context][width],
  // log_sums [samples][heads][context].
  void (*attention)(const AttentionShape& shape, int64_t samples, const T* qkv, T* out, T* log_sums);
  void (*attention_backward)(const AttentionShape& shape, int64_t samples, const T* qkv,
                             const T* log_sums, const T* dout, T* dqkv);

  // ---- blocks of images: conv_kernel.h, pool_kernel.h. filters [out][in][kernel][kernel]; `leaves` counts blocks.
  // What conv() takes of filters: themselves, or what is made of them in `room`, which has filter_room() elements.
  int64_t (*filter_room)(const ConvShape& shape);
  const T* (*ready_filters)(const ConvShape& shape, const T* filters, T* room);
  void (*conv)(const ConvShape& shape, const T* in, const T* ready, T* out);
  void (*conv_filter_gradient)(const ConvShape& shape, Leaves leaves, const T* in, const T* dout,
                               T* dfilters, bool add);
  void (*conv_bias_gradient)(const ConvShape& shape, Leaves leaves, const T* dout, T* dbias, bool add);
  // `which` is of pooled values alone: with a pool of 1 it is neither written nor read.
  void (*bias_relu_pool)(const ConvShape& shape, const T* x, const T* bias, T* pooled, uint8_t* which);
  void (*pool_relu_backward)(const ConvShape& shape, const T* pooled, const uint8_t* which,
                             const T* dpooled, T* dx);
  void (*rows_to_block)(int64_t count, int64_t pixels, const T* rows, T* block);
  void (*block_to_rows)(int64_t count, int64_t pixels, const T* block, T* rows);
};

// For float by what the CPU has, and the variable DTRAIN_ISA=amx|zen4|avx512|avx2|baseline if it is set and possible;
// for double always the same. Where each sample, not only the batch, has many rows, large products may be made in another
// way, which gives other bits: all of a training ask for as many.
template <class T>
const Kernels<T>& kernels(int64_t rows_of_sample = 1);
template <>
const Kernels<float>& kernels<float>(int64_t rows_of_sample);
template <>
const Kernels<double>& kernels<double>(int64_t rows_of_sample);

}  // namespace dtrain::engine
