// The updates of parameters, with the formulas of optimizer.cc. Built without contraction to fused
// multiply-adds, as it is: then an element has the same bits.
#include "engine/cuda/launch.h"
#include "engine/norm.h"

namespace dtrain::engine::cuda {

namespace {

constexpr unsigned kSquaresThreads = 1024;

__global__ void block_squares_kernel(int64_t count, const float* values, double* sums) {
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kBlock;
  const int64_t end = begin + kBlock < count ? begin + kBlock : count;
  double sum = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
    const double value = values[i];
    sum += value * value;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kSquaresThreads) add_squares_kernel(int64_t blocks, const double* sums, Totals* totals) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < blocks; i += blockDim.x) sum += sums[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) totals->squares += sum;
}

__global__ void step_scale_kernel(const Totals* totals, double clip_norm, StepScale* out) {
  const double sum = totals->squares;
  double scale = 1 / totals->rows;
  if (clip_norm != 0) {
    const double part = clip_norm / (sqrt(sum) * scale + 1e-6);  // 1e-6: as PyTorch
    scale *= part < 1 ? part : 1;
  }
  // A difference with itself is 0 of what is finite alone.
  out->scale = static_cast<float>(scale);
  out->finite = totals->loss - totals->loss == 0 && sum - sum == 0 ? 1 : 0;
}

template <int N>
__device__ void round_copy(Bfloat16* copy, int64_t i, const Pack<float, N>& params) {
  if (copy == nullptr) return;
  Pack<Bfloat16, N> rounded;
  for (int k = 0; k < N; ++k) rounded[k] = static_cast<Bfloat16>(params[k]);
  store(copy + i, rounded);
}

struct UpdateSgd {
  SgdStep c;
  const StepScale* scale;
  float* params;
  const float* grads;
  float* buffer;  // null: without momentum
  Bfloat16* copy;
  template <int N>
  __device__ void run(int64_t i, int64_t) const {
    if (scale->finite == 0) return;
    auto p = load<N>(params + i);
    const auto g = load<N>(grads + i);
    Pack<float, N> b = {};
    if (buffer != nullptr) b = load<N>(buffer + i);
    for (int k = 0; k < N; ++k) {
      const float grad = g[k] * scale->scale + p[k] * c.decay;
      float direction = grad;
      if (buffer != nullptr) {
        b[k] = b[k] * c.momentum + grad;
        direction = c.nesterov ? grad + c.momentum * b[k] : b[k];
      }
      p[k] = p[k] + c.minus_rate * direction;
    }
    store(params + i, p);
    if (buffer != nullptr) store(buffer + i, b);
    round_copy(copy, i, p);
  }
};

struct UpdateAdam {
  AdamStep c;
  const StepScale* scale;
  float* params;
  const float* grads;
  float *first, *second;
  Bfloat16* copy;
  template <int N>
  __device__ void run(int64_t i, int64_t) const {
    if (scale->finite == 0) return;
    auto p = load<N>(params + i), m = load<N>(first + i), v = load<N>(second + i);
    const auto g = load<N>(grads + i);
    for (int k = 0; k < N; ++k) {
      const float param = p[k] * c.shrink;
      const float grad = g[k] * scale->scale + param * c.l2;
      m[k] = m[k] + c.take1 * (grad - m[k]);
      v[k] = v[k] * c.beta2 + c.take2 * grad * grad;
      const float denominator = sqrtf(v[k]) / c.root_correction + c.epsilon;
      p[k] = param + c.minus_step_size * m[k] / denominator;
    }
    store(params + i, p);
    store(first + i, m);
    store(second + i, v);
    round_copy(copy, i, p);
  }
};

}  // namespace

void block_squares(cudaStream_t stream, int64_t count, const float* values, double* sums) {
  launch(stream, blocks_for(count, kBlock), kThreads, 0, &block_squares_kernel, count, values, sums);
}
void add_squares(cudaStream_t stream, int64_t blocks, const double* sums, Totals* totals) {
  launch(stream, 1u, kSquaresThreads, 0, &add_squares_kernel, blocks, sums, totals);
}
void step_scale(cudaStream_t stream, const Totals* totals, double clip_norm, StepScale* scale) {
  launch(stream, 1u, 1u, 0, &step_scale_kernel, totals, clip_norm, scale);
}
// Parameters begin on cache lines, so that packs of 4 are aligned wherever a range begins at one.
void update_sgd(cudaStream_t stream, int64_t count, SgdStep step, const StepScale* scale, float* params,
                const float* grads, float* buffer, Bfloat16* copy) {
  each_row<float>(stream, 1, count, UpdateSgd{step, scale, params, grads, buffer, copy}, params, grads,
                  buffer == nullptr ? params : buffer);
}
void update_adam(cudaStream_t stream, int64_t count, AdamStep step, const StepScale* scale, float* params,
                 const float* grads, float* first, float* second, Bfloat16* copy) {
  each_row<float>(stream, 1, count, UpdateAdam{step, scale, params, grads, first, second, copy}, params, grads, first,
                  second);
}

}  // namespace dtrain::engine::cuda
