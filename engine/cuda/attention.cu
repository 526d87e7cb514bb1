// Causal attention without scores in memory (Dao et al., arXiv 2205.14135): a block takes some rows of one head
// of one sample, and goes over the others 32 at a time, which it keeps in shared memory; in a warp, lane i has
// the i-th of them. Backward computes the scores again, once for the queries and once for keys and values, so
// that nothing is added from two blocks.
#include "engine/cuda/launch.h"

namespace dtrain::engine::cuda {

namespace {

constexpr int kWarps = 8;
// Of a block; backward, which keeps more, has half as many.
constexpr int kRowsOfWarp = 2;
constexpr int kRows = kWarps * kRowsOfWarp;
constexpr int kBackRowsOfWarp = 1;
constexpr int kBackRows = kWarps * kBackRowsOfWarp;
constexpr int kMostPerLane = kMaxHeadWidth / kWarp;

// Rows in shared memory lie an odd number of words apart: lanes that read a column of them meet no bank twice.
template <class T>
constexpr int64_t tile_elements(int64_t width) {
  return kWarp * (width + 1);
}

struct Place {
  int64_t context, width;   // of a head
  int64_t stride;           // between rows of q, k and v
  int64_t out_stride;       // between rows of the output
};

// What a block is of: one dimension has room for all samples of a batch, the others end at 65535.
struct Part {
  int64_t sample, head, first;  // of its rows
};
__device__ Part part_of_block(const Place& place, int64_t heads, int rows) {
  const int64_t blocks = (place.context + rows - 1) / rows, at = blockIdx.x / blocks;
  return {at / heads, at % heads, blockIdx.x % blocks * rows};
}

// `rows` rows of `from` times `scale`, zeros beyond `count`, `apart` from each other, by the whole block.
template <class T>
__device__ void read_rows(const T* from, int64_t stride, int64_t width, int64_t count, Sum<T> scale, int rows,
                          int64_t apart, Sum<T>* to) {
  for (int row = static_cast<int>(threadIdx.y); row < rows; row += kWarps) {
    for (int64_t column = threadIdx.x; column < width; column += kWarp) {
      to[row * apart + column] = row < count ? wide(from[row * stride + column]) * scale : Sum<T>(0);
    }
  }
}
template <class T>
__device__ void read_tile(const T* from, int64_t stride, int64_t width, int64_t count, Sum<T>* tile) {
  read_rows(from, stride, width, count, Sum<T>(1), kWarp, width + 1, tile);
}
template <class S>
__device__ S product(const S* a, const S* b, int64_t width) {
  S sum = 0;
  for (int64_t i = 0; i < width; ++i) sum += a[i] * b[i];
  return sum;
}
// acc += sum over lanes j of weight_j tile[j], each lane some columns.
template <class S>
__device__ void add_weighted(S weight, const S* tile, int64_t width, S (&acc)[kMostPerLane]) {
  for (int j = 0; j < kWarp; ++j) {
    const S w = __shfl_sync(0xffffffff, weight, j);
#pragma unroll  // else `acc` is no registers
    for (int c = 0; c < kMostPerLane; ++c) {
      const int64_t column = c * kWarp + threadIdx.x;
      if (column < width) acc[c] += w * tile[j * (width + 1) + column];
    }
  }
}

template <class T>
__global__ void forward_kernel(Place place, int64_t heads, Sum<T> scale, const T* qkv, T* out, Sum<T>* log_sums) {
  using S = Sum<T>;
  const int64_t width = place.width, model = heads * width;
  const auto [sample, head, first] = part_of_block(place, heads, kRows);
  const T* q = qkv + sample * place.context * place.stride + head * width;
  const T *k = q + model, *v = k + model;
  S* keys = shared_memory<S>();
  S* values = keys + tile_elements<T>(width);
  S* queries = values + tile_elements<T>(width);
  read_rows(q + first * place.stride, place.stride, width, place.context - first, scale, kRows, width, queries);
  S most[kRowsOfWarp], sum[kRowsOfWarp] = {}, acc[kRowsOfWarp][kMostPerLane] = {};
  for (S& each : most) each = -INFINITY;
  const int64_t end = first + kRows < place.context ? first + kRows : place.context;
  for (int64_t begin = 0; begin < end; begin += kWarp) {
    __syncthreads();
    const int64_t count = place.context - begin;
    read_tile(k + begin * place.stride, place.stride, width, count, keys);
    read_tile(v + begin * place.stride, place.stride, width, count, values);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRowsOfWarp; ++r) {
      const int64_t row = threadIdx.y * kRowsOfWarp + r, key = begin + threadIdx.x;
      const bool seen = key <= first + row && key < place.context;
      const S score = seen ? product(queries + row * width, keys + threadIdx.x * (width + 1), width) : S(-INFINITY);
      const S now = warp_max(score);
      if (now == S(-INFINITY)) continue;  // the same for the whole warp
      const S larger = now > most[r] ? now : most[r];
      const S shrink = sum[r] == S(0) ? S(0) : exp(most[r] - larger);
      const S weight = seen ? exp(score - larger) : S(0);
      sum[r] = sum[r] * shrink + warp_sum(weight);
      most[r] = larger;
      for (S& each : acc[r]) each *= shrink;
      add_weighted(weight, values, width, acc[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < kRowsOfWarp; ++r) {
    const int64_t row = first + threadIdx.y * kRowsOfWarp + r;
    if (row >= place.context) continue;
    T* to = out + (sample * place.context + row) * place.out_stride + head * width;
#pragma unroll
    for (int c = 0; c < kMostPerLane; ++c) {
      const int64_t column = c * kWarp + threadIdx.x;
      if (column < width) to[column] = static_cast<T>(acc[r][c] / sum[r]);
    }
    if (threadIdx.x == 0) log_sums[(sample * heads + head) * place.context + row] = most[r] + log(sum[r]);
  }
}

// deltas[sample][head][row] = the row of out times that of dout: what the softmax's gradient subtracts. A warp a row.
template <class T>
__global__ void delta_kernel(Place place, int64_t heads, int64_t rows, const T* out, const T* dout, Sum<T>* deltas) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.y;
  if (at >= rows * heads) return;
  const int64_t row = at / heads, head = at % heads;  // row: of all samples
  const int64_t offset = row * place.out_stride + head * place.width;
  Sum<T> sum = 0;
  for (int64_t i = threadIdx.x; i < place.width; i += kWarp) sum += wide(out[offset + i]) * wide(dout[offset + i]);
  sum = warp_sum(sum);
  const int64_t sample = row / place.context;
  if (threadIdx.x == 0) deltas[(sample * heads + head) * place.context + row % place.context] = sum;
}

// dq: rows are queries, lanes keys.
template <class T>
__global__ void query_gradient_kernel(Place place, int64_t heads, Sum<T> scale, const T* qkv, const Sum<T>* log_sums,
                                      const T* dout, const Sum<T>* deltas, T* dqkv) {
  using S = Sum<T>;
  const int64_t width = place.width, model = heads * width;
  const auto [sample, head, first] = part_of_block(place, heads, kBackRows);
  const int64_t offset = sample * place.context * place.stride + head * width;
  const T *q = qkv + offset, *k = q + model, *v = k + model;
  const T* d = dout + sample * place.context * place.out_stride + head * width;
  log_sums += (sample * heads + head) * place.context;
  deltas += (sample * heads + head) * place.context;
  S* keys = shared_memory<S>();
  S* values = keys + tile_elements<T>(width);
  S* queries = values + tile_elements<T>(width);
  S* gradients = queries + kBackRows * width;
  const int64_t left = place.context - first;
  read_rows(q + first * place.stride, place.stride, width, left, scale, kBackRows, width, queries);
  read_rows(d + first * place.out_stride, place.out_stride, width, left, S(1), kBackRows, width, gradients);
  S acc[kBackRowsOfWarp][kMostPerLane] = {};
  const int64_t end = first + kBackRows < place.context ? first + kBackRows : place.context;
  for (int64_t begin = 0; begin < end; begin += kWarp) {
    __syncthreads();
    read_tile(k + begin * place.stride, place.stride, width, place.context - begin, keys);
    read_tile(v + begin * place.stride, place.stride, width, place.context - begin, values);
    __syncthreads();
    for (int r = 0; r < kBackRowsOfWarp; ++r) {
      const int64_t in_block = threadIdx.y * kBackRowsOfWarp + r, row = first + in_block, key = begin + threadIdx.x;
      S weight = 0;
      if (row < place.context && key <= row) {
        const S* at_key = keys + threadIdx.x * (width + 1);
        const S p = exp(product(queries + in_block * width, at_key, width) - log_sums[row]);
        const S dp = product(gradients + in_block * width, values + threadIdx.x * (width + 1), width);
        weight = p * (dp - deltas[row]) * scale;
      }
      add_weighted(weight, keys, width, acc[r]);
    }
  }
  for (int r = 0; r < kBackRowsOfWarp; ++r) {
    const int64_t row = first + threadIdx.y * kBackRowsOfWarp + r;
    if (row >= place.context) continue;
#pragma unroll
    for (int c = 0; c < kMostPerLane; ++c) {
      const int64_t column = c * kWarp + threadIdx.x;
      if (column < width) dqkv[offset + row * place.stride + column] = static_cast<T>(acc[r][c]);
    }
  }
}

// dk and dv: rows are keys, lanes queries.
template <class T>
__global__ void key_gradient_kernel(Place place, int64_t heads, Sum<T> scale, const T* qkv, const Sum<T>* log_sums,
                                    const T* dout, const Sum<T>* deltas, T* dqkv) {
  using S = Sum<T>;
  const int64_t width = place.width, model = heads * width;
  const auto [sample, head, first] = part_of_block(place, heads, kBackRows);
  const int64_t offset = sample * place.context * place.stride + head * width;
  const T *q = qkv + offset, *k = q + model, *v = k + model;
  const T* d = dout + sample * place.context * place.out_stride + head * width;
  log_sums += (sample * heads + head) * place.context;
  deltas += (sample * heads + head) * place.context;
  S* queries = shared_memory<S>();
  S* gradients = queries + tile_elements<T>(width);
  S* keys = gradients + tile_elements<T>(width);
  S* values = keys + kBackRows * width;
  const int64_t left = place.context - first;
  read_rows(k + first * place.stride, place.stride, width, left, scale, kBackRows, width, keys);
  read_rows(v + first * place.stride, place.stride, width, left, S(1), kBackRows, width, values);
  S dk[kBackRowsOfWarp][kMostPerLane] = {}, dv[kBackRowsOfWarp][kMostPerLane] = {};
  for (int64_t begin = first / kWarp * kWarp; begin < place.context; begin += kWarp) {
    __syncthreads();
    read_tile(q + begin * place.stride, place.stride, width, place.context - begin, queries);
    read_tile(d + begin * place.out_stride, place.out_stride, width, place.context - begin, gradients);
    __syncthreads();
    for (int r = 0; r < kBackRowsOfWarp; ++r) {
      const int64_t in_block = threadIdx.y * kBackRowsOfWarp + r, key = first + in_block, row = begin + threadIdx.x;
      S p = 0, weight = 0;
      if (key <= row && row < place.context) {
        p = exp(product(keys + in_block * width, queries + threadIdx.x * (width + 1), width) - log_sums[row]);
        const S dp = product(values + in_block * width, gradients + threadIdx.x * (width + 1), width);
        weight = p * (dp - deltas[row]) * scale;
      }
      add_weighted(weight, queries, width, dk[r]);
      add_weighted(p, gradients, width, dv[r]);
    }
  }
  for (int r = 0; r < kBackRowsOfWarp; ++r) {
    const int64_t row = first + threadIdx.y * kBackRowsOfWarp + r;
    if (row >= place.context) continue;
    T* to = dqkv + offset + row * place.stride;
#pragma unroll
    for (int c = 0; c < kMostPerLane; ++c) {
      const int64_t column = c * kWarp + threadIdx.x;
      if (column >= width) continue;
      to[model + column] = static_cast<T>(dk[r][c]);
      to[2 * model + column] = static_cast<T>(dv[r][c]);
    }
  }
}

Place place_of(const AttentionShape& shape) {
  return {shape.context, shape.width / shape.heads, 3 * shape.width, shape.width};
}
unsigned parts_of(const AttentionShape& shape, int64_t samples, int rows) {
  return static_cast<unsigned>(samples * shape.heads * blocks_for(shape.context, rows));
}
template <class T>
size_t shared_bytes(int64_t width, int64_t rows_kept) {
  return static_cast<size_t>(2 * tile_elements<T>(width) + rows_kept * width) * sizeof(Sum<T>);
}

}  // namespace

template <class T>
void attention(cudaStream_t stream, const AttentionShape& shape, int64_t samples, const T* qkv, T* out,
               Sum<T>* log_sums) {
  const Place place = place_of(shape);
  const auto scale = static_cast<Sum<T>>(1 / sqrt(static_cast<double>(place.width)));
  launch(stream, parts_of(shape, samples, kRows), dim3(kWarp, kWarps), shared_bytes<T>(place.width, kRows), &forward_kernel<T>,
         place, shape.heads, scale, qkv, out, log_sums);
}

template <class T>
void attention_backward(cudaStream_t stream, const AttentionShape& shape, int64_t samples, const T* qkv, const T* out,
                        const Sum<T>* log_sums, const T* dout, T* dqkv, Sum<T>* work) {
  const Place place = place_of(shape);
  const auto scale = static_cast<Sum<T>>(1 / sqrt(static_cast<double>(place.width)));
  const int64_t rows = samples * shape.context;
  const dim3 grid(parts_of(shape, samples, kBackRows)), block(kWarp, kWarps);
  const size_t bytes = shared_bytes<T>(place.width, 2 * kBackRows);
  launch(stream, blocks_for(rows * shape.heads, kWarps), block, 0, &delta_kernel<T>, place, shape.heads, rows, out, dout,
         work);
  launch(stream, grid, block, bytes, &query_gradient_kernel<T>, place, shape.heads, scale, qkv, log_sums, dout, work,
         dqkv);
  launch(stream, grid, block, bytes, &key_gradient_kernel<T>, place, shape.heads, scale, qkv, log_sums, dout, work,
         dqkv);
}

#define DTRAIN_ATTENTION(T)                                                                                     \
  template void attention(cudaStream_t, const AttentionShape&, int64_t, const T*, T*, Sum<T>*);                 \
  template void attention_backward(cudaStream_t, const AttentionShape&, int64_t, const T*, const T*,            \
                                   const Sum<T>*, const T*, T*, Sum<T>*);
DTRAIN_ATTENTION(float)
DTRAIN_ATTENTION(double)
DTRAIN_ATTENTION(Bfloat16)

}  // namespace dtrain::engine::cuda
