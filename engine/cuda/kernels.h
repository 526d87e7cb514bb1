// The GPU's operations: what kernels/kernels.h has for the CPU, on device memory, and what updates
// parameters. Each call enqueues on a stream and returns at once; nothing is allocated, no host memory is
// read, so all of it can be captured in a graph. Values are float, double or bfloat16; what is summed is
// kept in Sum<T>. All matrices are row-major.
//
// No sum depends on the order in which blocks run (there are no atomic additions of floats): the same
// input gives the same bits on the same device.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "engine/kernels/kernels.h"

namespace dtrain::engine::cuda {

using Bfloat16 = __nv_bfloat16;

template <class T>
struct SumOf {
  using Type = T;
};
template <>
struct SumOf<Bfloat16> {
  using Type = float;
};
template <class T>
using Sum = typename SumOf<T>::Type;

// Sums over rows go in two steps; the first leaves this many partial sums of each column at most: three for each of the
// 132 multiprocessors of a Hopper chip, and on others as many, for the same bits.
inline constexpr int64_t kPartialRows = 396;
// Elements of Sum<T> that an operation on rows of n needs to work in.
inline int64_t row_workspace(int64_t n) { return 2 * kPartialRows * n; }

// Of one step, on the device; doubles, so that they can be summed over devices.
struct Totals {
  double loss = 0, rows = 0, correct = 0;
  double squares = 0;  // of gradients
};
inline constexpr int64_t kTotals = sizeof(Totals) / sizeof(double);

// ---- rows of n: rows.cu
template <class T>
void add_bias(cudaStream_t stream, int64_t rows, int64_t n, const T* bias, T* x);
template <class T>
void add_bias_relu(cudaStream_t stream, int64_t rows, int64_t n, const T* bias, T* x);
template <class T>
void add_bias_gelu(cudaStream_t stream, int64_t rows, int64_t n, const T* bias, T* x, T* y);  // x keeps x + bias
template <class T>
void relu_backward(cudaStream_t stream, int64_t count, const T* y, T* dy);  // dy becomes dx
template <class T>
void gelu_backward(cudaStream_t stream, int64_t count, const T* x, T* dy);
template <class T>
void add_to(cudaStream_t stream, int64_t count, const T* x, T* y);
template <class From, class To>  // float to Bfloat16 and double
void convert(cudaStream_t stream, int64_t count, const From* from, To* to);
// out (+)= the sum over rows. Here and below `work` has row_workspace(n) elements.
template <class T>
void sum_rows(cudaStream_t stream, int64_t rows, int64_t n, const T* x, Sum<T>* out, bool add, Sum<T>* work);
template <class T>
void layer_norm(cudaStream_t stream, int64_t rows, int64_t n, const T* x, const T* gain, const T* bias, T* y,
                Sum<T>* mean, Sum<T>* rstd);
// Adds to dx.
template <class T>
void layer_norm_backward(cudaStream_t stream, int64_t rows, int64_t n, const T* x, const T* gain,
                         const Sum<T>* mean, const Sum<T>* rstd, const T* dy, T* dx, Sum<T>* dgain,
                         Sum<T>* dbias, bool add, Sum<T>* work);

// ---- the loss: loss.cu
// Rows of n logits, `ld` apart, become the gradients of the losses, what lies beyond n zeros. losses and
// right (whether the label has the largest logit, and the first of those that are as large) are of each row.
template <class T>
void softmax_cross_entropy(cudaStream_t stream, int64_t rows, int64_t n, int64_t ld, const int32_t* labels,
                           T* logits, double* losses, int32_t* right);
// The same where columns [first, first + n) of the logits are here, in two steps. What one tells the
// others of each row: the largest logit, the logarithm of the sum of exponentials, the label's logit
// (minus infinity where it is not here), and whether that is right among those that are here.
inline constexpr int64_t kSliceTold = 4;
template <class T>
void tell_slice(cudaStream_t stream, int64_t rows, int64_t n, int64_t ld, int64_t first, const int32_t* labels,
                const T* logits, Sum<T>* told);
// `all` [slices][rows][kSliceTold].
template <class T>
void sliced_cross_entropy(cudaStream_t stream, int64_t rows, int64_t n, int64_t ld, int64_t first,
                          const int32_t* labels, int slices, const Sum<T>* all, T* logits, double* losses,
                          int32_t* right);
// Adds those of `rows` rows to *totals, in a fixed order.
void add_totals(cudaStream_t stream, int64_t rows, const double* losses, const int32_t* right, Totals* totals);

// ---- embeddings: embeddings.cu
// x[row] = tokens[ids[row] - first] + positions[row % context], without the first where the token is not
// one of [first, first + count); `positions` may be null: without.
template <class T>
void embed(cudaStream_t stream, int64_t rows, int64_t n, int64_t context, const int32_t* ids, int64_t first,
           int64_t count, const T* tokens, const T* positions, T* x);
// x[row] += positions[row % context]
template <class T>
void add_positions(cudaStream_t stream, int64_t rows, int64_t n, int64_t context, const T* positions, T* x);
// out [context][n] (+)= the sum over samples.
template <class T>
void position_gradient(cudaStream_t stream, int64_t samples, int64_t n, int64_t context, const T* dx,
                       Sum<T>* out, bool add);
// order [rows]: the rows sorted by their token, in their order within one (a stable sort); begin
// [vocabulary + 1]: where in it each token's rows begin. From ids, on the device. `work` has
// token_order_workspace() elements.
int64_t token_order_workspace(int64_t rows, int64_t vocabulary);
void order_by_token(cudaStream_t stream, int64_t rows, int64_t vocabulary, const int32_t* ids, int32_t* order,
                    int32_t* begin, int32_t* work);
// out[token - first] += the sum of its rows of dx, for tokens [first, first + count).
template <class T>
void token_gradient(cudaStream_t stream, int64_t n, int64_t first, int64_t count, const int32_t* order,
                    const int32_t* begin, const T* dx, Sum<T>* out);

// ---- causal attention: attention.cu; shapes as in kernels/kernels.h
inline constexpr int64_t kMaxHeadWidth = 128;
template <class T>
void attention(cudaStream_t stream, const AttentionShape& shape, int64_t samples, const T* qkv, T* out,
               Sum<T>* log_sums);
// `work`: a number for each row and head.
template <class T>
void attention_backward(cudaStream_t stream, const AttentionShape& shape, int64_t samples, const T* qkv,
                        const T* out, const Sum<T>* log_sums, const T* dout, T* dqkv, Sum<T>* work);

// ---- blocks of kBlockImages images, one after the other: convolutions.cu; shapes as in kernels/kernels.h
inline constexpr int64_t kMostOfBlock = UINT32_MAX;  // of its elements
template <class T>
void conv(cudaStream_t stream, const ConvShape& shape, int64_t blocks, const T* in, const T* filters, T* out);
// `work`: conv_gradients_workspace() elements.
int64_t conv_gradients_workspace(const ConvShape& shape, int64_t blocks);
template <class T>
void conv_gradients(cudaStream_t stream, const ConvShape& shape, int64_t blocks, const T* in, const T* dout,
                    Sum<T>* dfilters, Sum<T>* dbias, bool add, Sum<T>* work);
template <class T>
void bias_relu_pool(cudaStream_t stream, const ConvShape& shape, int64_t blocks, const T* x, const T* bias,
                    T* pooled, uint8_t* which);
template <class T>
void pool_relu_backward(cudaStream_t stream, const ConvShape& shape, int64_t blocks, const T* pooled,
                        const uint8_t* which, const T* dpooled, T* dx);
// rows [images][pixels] to blocks and back; images that the last block lacks are zeros.
template <class T>
void rows_to_blocks(cudaStream_t stream, int64_t images, int64_t pixels, const T* rows, T* blocks);
template <class T>
void blocks_to_rows(cudaStream_t stream, int64_t images, int64_t pixels, const T* blocks, T* rows);
// rows [images][channels height width] to blocks of images in a frame of `padding` zeros.
template <class T>
void rows_to_framed_blocks(cudaStream_t stream, int64_t images, int64_t channels, int64_t height, int64_t width,
                           int64_t padding, const T* rows, T* blocks);
// [out][in][y][x] -> [in][out][-y][-x]
template <class T>
void flip_filters(cudaStream_t stream, const ConvShape& shape, const T* filters, T* flipped);

// ---- updates, element by element with the bits of optimizer.cc: updates.cu (no fused multiply-adds)
// What every update of a step is scaled by, on the device.
struct StepScale {
  float scale = 0;     // of the sum of gradients
  int32_t finite = 0;  // else parameters and state stay as they are
};
// One sum for each kBlock elements (engine/norm.h), for any number of them; and all of those, onto what is
// in the totals.
void block_squares(cudaStream_t stream, int64_t count, const float* values, double* sums);
void add_squares(cudaStream_t stream, int64_t blocks, const double* sums, Totals* totals);
// From the totals of the whole batch; of their squares if clip_norm is not 0.
void step_scale(cudaStream_t stream, const Totals* totals, double clip_norm, StepScale* scale);
// Constants as optimizer.cc has them, but for the scale.
struct SgdStep {
  float decay, momentum, minus_rate;
  bool nesterov;
};
struct AdamStep {
  float l2, shrink, take1, beta2, take2, root_correction, epsilon, minus_step_size;
};
// `buffer` null: without momentum. `copy` not null: the new parameters, rounded.
void update_sgd(cudaStream_t stream, int64_t count, SgdStep step, const StepScale* scale, float* params,
                const float* grads, float* buffer, Bfloat16* copy);
void update_adam(cudaStream_t stream, int64_t count, AdamStep step, const StepScale* scale, float* params,
                 const float* grads, float* first, float* second, Bfloat16* copy);

}  // namespace dtrain::engine::cuda
