#include "engine/cuda/launch.h"

namespace dtrain::engine::cuda {

namespace {

template <class S>
__device__ S gelu_tanh(S x) {
  const S u = S(0.7978845608028654) * (x + S(0.044715) * x * x * x);
  return S(1) - S(2) / (exp(u + u) + S(1));
}
template <class S>
__device__ S gelu(S x) {
  return x * S(0.5) * (gelu_tanh(x) + S(1));
}
template <class S>
__device__ S gelu_slope(S x) {
  const S t = gelu_tanh(x);
  const S slope = S(0.7978845608028654) * (S(1) + S(3 * 0.044715) * x * x);
  return S(0.5) * (t + S(1) + x * (S(1) - t * t) * slope);
}

// x = f(x, bias)
template <class T, bool relu>
struct AddBias {
  const T* bias;
  T* x;
  template <int N>
  __device__ void run(int64_t i, int64_t column) const {
    auto values = load<N>(x + i);
    const auto b = load<N>(bias + column);
    for (int k = 0; k < N; ++k) {
      const Sum<T> sum = wide(values[k]) + wide(b[k]);
      values[k] = static_cast<T>(relu && sum < Sum<T>(0) ? Sum<T>(0) : sum);
    }
    store(x + i, values);
  }
};

template <class T>
struct AddBiasGelu {
  const T* bias;
  T *x, *y;
  template <int N>
  __device__ void run(int64_t i, int64_t column) const {
    auto values = load<N>(x + i);
    const auto b = load<N>(bias + column);
    Pack<T, N> out;
    for (int k = 0; k < N; ++k) {
      const Sum<T> sum = wide(values[k]) + wide(b[k]);
      values[k] = static_cast<T>(sum);
      out[k] = static_cast<T>(gelu(sum));
    }
    store(x + i, values);
    store(y + i, out);
  }
};

template <class T>
struct ReluBackward {
  const T* y;
  T* dy;
  template <int N>
  __device__ void run(int64_t i, int64_t) const {
    auto gradients = load<N>(dy + i);
    const auto values = load<N>(y + i);
    for (int k = 0; k < N; ++k) {
      if (!(wide(values[k]) > Sum<T>(0))) gradients[k] = static_cast<T>(Sum<T>(0));
    }
    store(dy + i, gradients);
  }
};

template <class T>
struct GeluBackward {
  const T* x;
  T* dy;
  template <int N>
  __device__ void run(int64_t i, int64_t) const {
    auto gradients = load<N>(dy + i);
    const auto values = load<N>(x + i);
    for (int k = 0; k < N; ++k) {
      gradients[k] = static_cast<T>(wide(gradients[k]) * gelu_slope(wide(values[k])));
    }
    store(dy + i, gradients);
  }
};

template <class T>
struct AddTo {
  const T* x;
  T* y;
  template <int N>
  __device__ void run(int64_t i, int64_t) const {
    auto sums = load<N>(y + i);
    const auto values = load<N>(x + i);
    for (int k = 0; k < N; ++k) sums[k] = static_cast<T>(wide(sums[k]) + wide(values[k]));
    store(y + i, sums);
  }
};

template <class From, class To>
struct Convert {
  const From* from;
  To* to;
  template <int N>
  __device__ void run(int64_t i, int64_t) const {
    const auto values = load<N>(from + i);
    Pack<To, N> out;
    for (int k = 0; k < N; ++k) out[k] = static_cast<To>(values[k]);
    store(to + i, out);
  }
};

// ---- sums of columns: each block sums some rows, then each column's sums are summed

constexpr int kColumnRows = 8;  // rows of a block that are read side by side

// N columns of each thread; out [gridDim.y][n].
template <class T, int N>
__global__ void sum_rows_kernel(int64_t rows, int64_t n, const T* x, Sum<T>* out) {
  __shared__ Sum<T> sums[kColumnRows][N][kWarp];
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x) * N;
  Sum<T> sum[N] = {};
  if (column < n) {
    // Several loads at once: one alone leaves most of the memory's bandwidth unused.
#pragma unroll 4
    for (int64_t row = blockIdx.y * kColumnRows + threadIdx.y; row < rows; row += gridDim.y * kColumnRows) {
      const auto values = load<N>(x + row * n + column);
      for (int k = 0; k < N; ++k) sum[k] += wide(values[k]);
    }
  }
  for (int k = 0; k < N; ++k) sums[threadIdx.y][k][threadIdx.x] = sum[k];
  __syncthreads();
  if (threadIdx.y != 0 || column >= n) return;
  out += blockIdx.y * n + column;
  for (int k = 0; k < N; ++k) {
    for (int i = 1; i < kColumnRows; ++i) sum[k] += sums[i][k][threadIdx.x];
    out[k] = sum[k];
  }
}

template <class T, int N>
void sum_columns(cudaStream_t stream, int64_t parts, int64_t rows, int64_t n, const T* x, Sum<T>* out) {
  launch(stream, dim3(blocks_for(n, kWarp * N), static_cast<unsigned>(parts)), dim3(kWarp, kColumnRows), 0,
         &sum_rows_kernel<T, N>, rows, n, x, out);
}

// Of `count` partial sums of each of n columns, and of others kPartialRows of them further on, to `second`. Warps of
// a block first go along rows, then each has a column.
template <class S>
__global__ void __launch_bounds__(kWarp * kWarp) sum_partial_kernel(int64_t count, int64_t n, const S* partial, S* first, S* second, bool add) {
  __shared__ S sums[kWarp][kWarp + 1];
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kWarp, column = begin + threadIdx.x;
  partial += blockIdx.y * kPartialRows * n;
  S sum = 0;
  if (column < n) {
#pragma unroll 4
    for (int64_t row = threadIdx.y; row < count; row += kWarp) sum += partial[row * n + column];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  sum = warp_sum(sums[threadIdx.x][threadIdx.y]);
  if (threadIdx.x != 0 || begin + threadIdx.y >= n) return;
  S* const to = (blockIdx.y == 0 ? first : second) + begin + threadIdx.y;
  *to = add ? *to + sum : sum;
}
template <class S>
void sum_partial(cudaStream_t stream, int64_t count, int64_t n, const S* partial, S* first, S* second, bool add) {
  launch(stream, dim3(blocks_for(n, kWarp), second == nullptr ? 1 : 2), dim3(kWarp, kWarp), 0, &sum_partial_kernel<S>, count, n, partial,
         first, second, add);
}

// ---- layer norm: a warp for each row

constexpr unsigned kRowsOfBlock = 8;  // one for each warp

template <class T>
__global__ void layer_norm_kernel(int64_t rows, int64_t n, const T* x, const T* gain, const T* bias, T* y,
                                  Sum<T>* mean, Sum<T>* rstd) {
  using S = Sum<T>;
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRowsOfBlock + threadIdx.y;
  if (row >= rows) return;
  x += row * n;
  y += row * n;
  S sum = 0;
  for (int64_t i = lane; i < n; i += kWarp) sum += wide(x[i]);
  const S m = warp_sum(sum) / static_cast<S>(n);
  S squares = 0;
  for (int64_t i = lane; i < n; i += kWarp) {
    const S from_mean = wide(x[i]) - m;
    squares += from_mean * from_mean;
  }
  const S r = S(1) / sqrt(warp_sum(squares) / static_cast<S>(n) + S(1e-5));
  for (int64_t i = lane; i < n; i += kWarp) {
    y[i] = static_cast<T>((wide(x[i]) - m) * r * wide(gain[i]) + wide(bias[i]));
  }
  if (lane == 0) {
    mean[row] = m;
    rstd[row] = r;
  }
}
// The same for rows in whole packs, of which a lane keeps C in registers: one read of x.
template <class T, int C>
__global__ void layer_norm_packs_kernel(int64_t rows, int64_t n, const T* x, const T* gain, const T* bias, T* y,
                                        Sum<T>* mean, Sum<T>* rstd) {
  using S = Sum<T>;
  constexpr int N = kPack<T>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRowsOfBlock + threadIdx.y;
  if (row >= rows) return;
  x += row * n;
  y += row * n;
  const int64_t first = static_cast<int64_t>(threadIdx.x) * N;
  Pack<T, N> packs[C];
  S sum = 0;
#pragma unroll
  for (int c = 0; c < C; ++c) {
    const int64_t at = first + int64_t{c} * kWarp * N;
    if (at >= n) continue;
    packs[c] = load<N>(x + at);
    for (int k = 0; k < N; ++k) sum += wide(packs[c][k]);
  }
  const S m = warp_sum(sum) / static_cast<S>(n);
  S squares = 0;
#pragma unroll
  for (int c = 0; c < C; ++c) {
    if (first + int64_t{c} * kWarp * N >= n) continue;
    for (int k = 0; k < N; ++k) {
      const S from_mean = wide(packs[c][k]) - m;
      squares += from_mean * from_mean;
    }
  }
  const S r = S(1) / sqrt(warp_sum(squares) / static_cast<S>(n) + S(1e-5));
#pragma unroll
  for (int c = 0; c < C; ++c) {
    const int64_t at = first + int64_t{c} * kWarp * N;
    if (at >= n) continue;
    const auto g = load<N>(gain + at), b = load<N>(bias + at);
    for (int k = 0; k < N; ++k) {
      packs[c][k] = static_cast<T>((wide(packs[c][k]) - m) * r * wide(g[k]) + wide(b[k]));
    }
    store(y + at, packs[c]);
  }
  if (threadIdx.x == 0) {
    mean[row] = m;
    rstd[row] = r;
  }
}

// A warp for each row's dx, a thread for some columns of gain and bias, which it reads again of the rows that the block's
// warps have just read: from the cache. Of a row a lane reads C packs at once, or one after the other if C is 0; columns
// are Q times M of each thread.
template <class T, int C, int Q>
__global__ void __launch_bounds__(kWarp * kRowsOfBlock, 3)
    layer_norm_backward_kernel(int64_t rows, int n, const T* x, const T* gain, const Sum<T>* mean, const Sum<T>* rstd, const T* dy,
                               T* dx, Sum<T>* partial) {
  using S = Sum<T>;
  constexpr int N = kPack<T>, M = std::min(4, N), kAtOnce = kWarp * N, kThreadsOfBlock = kWarp * kRowsOfBlock;
  const int first = static_cast<int>(threadIdx.x) * N, thread = static_cast<int>(threadIdx.y * kWarp + threadIdx.x);
  S dgain[Q][M] = {}, dbias[Q][M] = {};
  const int64_t step = static_cast<int64_t>(gridDim.x) * kRowsOfBlock;
  for (int64_t begin = static_cast<int64_t>(blockIdx.x) * kRowsOfBlock; begin < rows; begin += step) {
    const int64_t row = begin + threadIdx.y;
    if (row < rows) {
      const S m = mean[row], r = rstd[row];
      const T *const x_row = x + row * n, *const dy_row = dy + row * n;
      T* const dx_row = dx + row * n;
      S sum = 0, product = 0;
      const auto add = [&](int at, const Held<T, N>& values, const Held<T, N>& gradients) {
        const auto g = load<N>(gain + at);
#pragma unroll
        for (int k = 0; k < N; ++k) {
          const S d = gradients[k] * wide(g[k]);
          sum += d;
          product += d * (values[k] - m) * r;
        }
      };
      const auto change = [&](int at, const Held<T, N>& values, const Held<T, N>& gradients, const Held<T, N>& held) {
        const auto g = load<N>(gain + at);
        Pack<T, N> out;
#pragma unroll
        for (int k = 0; k < N; ++k) {
          const S d = gradients[k] * wide(g[k]), normal = (values[k] - m) * r;
          out[k] = static_cast<T>(held[k] + (d - sum - normal * product) * r);
        }
        store(dx_row + at, out);
      };
      const auto end_sums = [&] {
        sum = warp_sum(sum) / static_cast<S>(n);
        product = warp_sum(product) / static_cast<S>(n);
      };
      if constexpr (C > 0) {
        Held<T, N> values[C] = {}, gradients[C] = {}, outs[C] = {};
#pragma unroll
        for (int c = 0; c < C; ++c) {
          if (first + c * kAtOnce >= n) continue;
          values[c] = hold<N>(x_row + first + c * kAtOnce);
          gradients[c] = hold<N>(dy_row + first + c * kAtOnce);
          outs[c] = hold<N>(dx_row + first + c * kAtOnce);
        }
#pragma unroll
        for (int c = 0; c < C; ++c) {
          if (first + c * kAtOnce < n) add(first + c * kAtOnce, values[c], gradients[c]);
        }
        end_sums();
#pragma unroll
        for (int c = 0; c < C; ++c) {
          if (first + c * kAtOnce < n) change(first + c * kAtOnce, values[c], gradients[c], outs[c]);
        }
      } else {
#pragma unroll 4
        for (int at = first; at < n; at += kAtOnce) add(at, hold<N>(x_row + at), hold<N>(dy_row + at));
        end_sums();
#pragma unroll 2
        for (int at = first; at < n; at += kAtOnce) change(at, hold<N>(x_row + at), hold<N>(dy_row + at), hold<N>(dx_row + at));
      }
    }
    const int count = static_cast<int>(std::min<int64_t>(kRowsOfBlock, rows - begin));
#pragma unroll
    for (int q = 0; q < Q; ++q) {
      const int column = (q * kThreadsOfBlock + thread) * M;
      if (column >= n) continue;
#pragma unroll 4
      for (int i = 0; i < count; ++i) {
        const S m = mean[begin + i], r = rstd[begin + i];
        const auto values = hold<M>(x + (begin + i) * n + column), gradients = hold<M>(dy + (begin + i) * n + column);
#pragma unroll
        for (int k = 0; k < M; ++k) {
          const S d = gradients[k];
          dgain[q][k] += d * (values[k] - m) * r;
          dbias[q][k] += d;
        }
      }
    }
  }
#pragma unroll
  for (int q = 0; q < Q; ++q) {
    const int column = (q * kThreadsOfBlock + thread) * M;
    if (column >= n) continue;
    for (int k = 0; k < M; ++k) {
      partial[static_cast<int64_t>(blockIdx.x) * n + column + k] = dgain[q][k];
      partial[(kPartialRows + blockIdx.x) * n + column + k] = dbias[q][k];
    }
  }
}

// For rows of any width: dx by warps, gain and bias by columns.
template <class T>
__global__ void layer_norm_dx_kernel(int64_t rows, int64_t n, const T* x, const T* gain, const Sum<T>* mean,
                                     const Sum<T>* rstd, const T* dy, T* dx) {
  using S = Sum<T>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRowsOfBlock + threadIdx.y;
  if (row >= rows) return;
  const S m = mean[row], r = rstd[row];
  x += row * n;
  dy += row * n;
  dx += row * n;
  S sum = 0, product = 0;
  for (int64_t i = threadIdx.x; i < n; i += kWarp) {
    const S g = wide(dy[i]) * wide(gain[i]);
    sum += g;
    product += g * (wide(x[i]) - m) * r;
  }
  sum = warp_sum(sum) / static_cast<S>(n);
  product = warp_sum(product) / static_cast<S>(n);
  for (int64_t i = threadIdx.x; i < n; i += kWarp) {
    const S normal = (wide(x[i]) - m) * r;
    dx[i] = static_cast<T>(wide(dx[i]) + (wide(dy[i]) * wide(gain[i]) - sum - normal * product) * r);
  }
}
template <class T>
__global__ void layer_norm_columns_kernel(int64_t rows, int64_t n, const T* x, const Sum<T>* mean,
                                          const Sum<T>* rstd, const T* dy, Sum<T>* partial) {
  using S = Sum<T>;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= n) return;
  S gain = 0, bias = 0;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const S d = wide(dy[row * n + column]);
    gain += d * (wide(x[row * n + column]) - mean[row]) * rstd[row];
    bias += d;
  }
  partial[blockIdx.y * n + column] = gain;
  partial[(kPartialRows + blockIdx.y) * n + column] = bias;
}

}  // namespace

template <class T>
void add_bias(cudaStream_t stream, int64_t rows, int64_t n, const T* bias, T* x) {
  each_row<T>(stream, rows, n, AddBias<T, false>{bias, x}, bias, x);
}
template <class T>
void add_bias_relu(cudaStream_t stream, int64_t rows, int64_t n, const T* bias, T* x) {
  each_row<T>(stream, rows, n, AddBias<T, true>{bias, x}, bias, x);
}
template <class T>
void add_bias_gelu(cudaStream_t stream, int64_t rows, int64_t n, const T* bias, T* x, T* y) {
  each_row<T>(stream, rows, n, AddBiasGelu<T>{bias, x, y}, bias, x, y);
}
template <class T>
void relu_backward(cudaStream_t stream, int64_t count, const T* y, T* dy) {
  each_row<T>(stream, 1, count, ReluBackward<T>{y, dy}, y, dy);
}
template <class T>
void gelu_backward(cudaStream_t stream, int64_t count, const T* x, T* dy) {
  each_row<T>(stream, 1, count, GeluBackward<T>{x, dy}, x, dy);
}
template <class T>
void add_to(cudaStream_t stream, int64_t count, const T* x, T* y) {
  each_row<T>(stream, 1, count, AddTo<T>{x, y}, x, y);
}
template <class From, class To>
void convert(cudaStream_t stream, int64_t count, const From* from, To* to) {
  each_row<From>(stream, 1, count, Convert<From, To>{from, to}, from, to);
}

template <class T>
void sum_rows(cudaStream_t stream, int64_t rows, int64_t n, const T* x, Sum<T>* out, bool add, Sum<T>* work) {
  const int64_t parts = std::min(kPartialRows, std::max<int64_t>(1, (rows + kColumnRows - 1) / kColumnRows));
  if (takes_packs<T>(n, x)) {
    sum_columns<T, kPack<T>>(stream, parts, rows, n, x, work);
  } else {
    sum_columns<T, 1>(stream, parts, rows, n, x, work);
  }
  sum_partial<Sum<T>>(stream, parts, n, work, out, nullptr, add);
}

template <class T>
void layer_norm(cudaStream_t stream, int64_t rows, int64_t n, const T* x, const T* gain, const T* bias, T* y,
                Sum<T>* mean, Sum<T>* rstd) {
  constexpr int64_t kOnce = int64_t{kWarp} * kPack<T>;
  const dim3 grid(blocks_for(rows, kRowsOfBlock)), block(kWarp, kRowsOfBlock);
  const auto run = [&](auto kernel) { launch(stream, grid, block, 0, kernel, rows, n, x, gain, bias, y, mean, rstd); };
  if (!takes_packs<T>(n, x, gain, bias, y) || n > 8 * kOnce) return run(&layer_norm_kernel<T>);
  if (n <= 2 * kOnce) return run(&layer_norm_packs_kernel<T, 2>);
  if (n <= 3 * kOnce) return run(&layer_norm_packs_kernel<T, 3>);
  if (n <= 4 * kOnce) return run(&layer_norm_packs_kernel<T, 4>);
  run(&layer_norm_packs_kernel<T, 8>);
}

template <class T>
void layer_norm_backward(cudaStream_t stream, int64_t rows, int64_t n, const T* x, const T* gain,
                         const Sum<T>* mean, const Sum<T>* rstd, const T* dy, T* dx, Sum<T>* dgain,
                         Sum<T>* dbias, bool add, Sum<T>* work) {
  constexpr int64_t kOnce = int64_t{kWarp} * kPack<T>, kColumns = int64_t{kWarp} * kRowsOfBlock * std::min(4, kPack<T>);
  const auto most = [&](int64_t each) {
    return static_cast<unsigned>(std::min(kPartialRows, std::max<int64_t>(1, (rows + each - 1) / each)));
  };
  unsigned parts = most(kRowsOfBlock);
  if (takes_packs<T>(n, x, gain, dy, dx) && n <= 4 * kColumns) {
    const auto run = [&](auto kernel) {
      launch(stream, parts, dim3(kWarp, kRowsOfBlock), 0, kernel, rows, n, x, gain, mean, rstd, dy, dx, work);
    };
    if (n > 2 * kColumns) run(&layer_norm_backward_kernel<T, 0, 4>);
    else if (n > kColumns) run(&layer_norm_backward_kernel<T, 0, 2>);
    else if (n <= kOnce) run(&layer_norm_backward_kernel<T, 1, 1>);
    else if (n <= 2 * kOnce) run(&layer_norm_backward_kernel<T, 2, 1>);
    else if (n <= 3 * kOnce) run(&layer_norm_backward_kernel<T, 3, 1>);
    else if (n <= 4 * kOnce) run(&layer_norm_backward_kernel<T, 4, 1>);
    else run(&layer_norm_backward_kernel<T, 0, 1>);
  } else {
    parts = most(32);
    launch(stream, blocks_for(rows, kRowsOfBlock), dim3(kWarp, kRowsOfBlock), 0, &layer_norm_dx_kernel<T>, rows, n, x,
           gain, mean, rstd, dy, dx);
    launch(stream, dim3(blocks_for(n, 128), parts), 128u, 0, &layer_norm_columns_kernel<T>, rows, n, x, mean, rstd, dy,
           work);
  }
  sum_partial(stream, parts, n, work, dgain, dbias, add);
}

#define DTRAIN_ROWS(T)                                                                                              \
  template void add_bias(cudaStream_t, int64_t, int64_t, const T*, T*);                                             \
  template void add_bias_relu(cudaStream_t, int64_t, int64_t, const T*, T*);                                        \
  template void add_bias_gelu(cudaStream_t, int64_t, int64_t, const T*, T*, T*);                                    \
  template void relu_backward(cudaStream_t, int64_t, const T*, T*);                                                 \
  template void gelu_backward(cudaStream_t, int64_t, const T*, T*);                                                 \
  template void add_to(cudaStream_t, int64_t, const T*, T*);                                                        \
  template void sum_rows(cudaStream_t, int64_t, int64_t, const T*, Sum<T>*, bool, Sum<T>*);                         \
  template void layer_norm(cudaStream_t, int64_t, int64_t, const T*, const T*, const T*, T*, Sum<T>*, Sum<T>*);     \
  template void layer_norm_backward(cudaStream_t, int64_t, int64_t, const T*, const T*, const Sum<T>*,              \
                                    const Sum<T>*, const T*, T*, Sum<T>*, Sum<T>*, bool, Sum<T>*);
DTRAIN_ROWS(float)
DTRAIN_ROWS(double)
DTRAIN_ROWS(Bfloat16)
template void convert(cudaStream_t, int64_t, const float*, Bfloat16*);
template void convert(cudaStream_t, int64_t, const float*, double*);

}  // namespace dtrain::engine::cuda
