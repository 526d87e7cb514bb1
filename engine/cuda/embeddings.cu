#include "engine/cuda/launch.h"

namespace dtrain::engine::cuda {

namespace {

template <class T>
struct Embed {
  const int32_t* ids;
  int64_t n, context, first, count;
  const T *tokens, *positions;  // positions may be null
  T* x;
  template <int N>
  __device__ void run(int64_t i, int64_t column) const {
    const int64_t row = i / n, token = ids[row] - first;
    Pack<T, N> out = {};
    if (token >= 0 && token < count) out = load<N>(tokens + token * n + column);
    if (positions != nullptr) {
      const auto position = load<N>(positions + row % context * n + column);
      for (int k = 0; k < N; ++k) out[k] = static_cast<T>(wide(out[k]) + wide(position[k]));
    }
    store(x + i, out);
  }
};

template <class T>
struct AddPositions {
  int64_t n, context;
  const T* positions;
  T* x;
  template <int N>
  __device__ void run(int64_t i, int64_t column) const {
    auto values = load<N>(x + i);
    const auto position = load<N>(positions + i / n % context * n + column);
    for (int k = 0; k < N; ++k) values[k] = static_cast<T>(wide(values[k]) + wide(position[k]));
    store(x + i, values);
  }
};

template <class T>
struct PositionGradient {
  int64_t samples, size;  // of a sample
  const T* dx;
  Sum<T>* out;
  bool add;
  template <int N>
  __device__ void run(int64_t i, int64_t) const {
    Sum<T> sums[N] = {};
    for (int64_t sample = 0; sample < samples; ++sample) {
      const auto values = load<N>(dx + sample * size + i);
      for (int k = 0; k < N; ++k) sums[k] += wide(values[k]);
    }
    for (int k = 0; k < N; ++k) out[i + k] = add ? out[i + k] + sums[k] : sums[k];
  }
};

// A token's rows in their order, N columns of each thread at once. The commonest token of a text has thousands of rows,
// which one block goes through: several loads at once.
template <class T, int N>
__global__ void token_gradient_kernel(int64_t n, int64_t first, const int32_t* order, const int32_t* begin,
                                      const T* dx, Sum<T>* out) {
  const int64_t token = first + blockIdx.x;
  const int32_t from = begin[token], to = begin[token + 1];
  if (from == to) return;
  out += blockIdx.x * n;
  for (int64_t column = static_cast<int64_t>(threadIdx.x) * N; column < n; column += static_cast<int64_t>(blockDim.x) * N) {
    Sum<T> sum[N] = {};
#pragma unroll 8
    for (int32_t i = from; i < to; ++i) {
      const auto values = load<N>(dx + order[i] * n + column);
      for (int k = 0; k < N; ++k) sum[k] += wide(values[k]);
    }
    for (int k = 0; k < N; ++k) out[column + k] += sum[k];
  }
}

// ---- a stable radix sort, 8 bits a pass: rows are cut into chunks, and thread d of a block writes its
// chunk's rows of digit d, in order, to where the counts before them say

constexpr int kDigits = 256;
constexpr int64_t kChunk = 1024;

int64_t chunks_of(int64_t rows) { return (rows + kChunk - 1) / kChunk; }

__device__ int digit_of(int32_t key, int shift) { return key >> shift & (kDigits - 1); }

__global__ void count_digits_kernel(int64_t rows, int shift, const int32_t* keys, int32_t* counts) {
  __shared__ int32_t digits[kChunk];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kChunk;
  const int64_t count = rows - first < kChunk ? rows - first : kChunk;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) digits[i] = digit_of(keys[first + i], shift);
  __syncthreads();
  int32_t mine = 0;
  for (int64_t i = 0; i < count; ++i) mine += digits[i] == static_cast<int32_t>(threadIdx.x) ? 1 : 0;
  counts[static_cast<int64_t>(threadIdx.x) * gridDim.x + blockIdx.x] = mine;  // [digit][chunk]
}

// Each becomes the sum of all before it; one block.
constexpr unsigned kSumThreads = 1024;
__global__ void __launch_bounds__(kSumThreads) sum_before_kernel(int64_t count, int32_t* values) {
  __shared__ int32_t sums[kSumThreads];
  const int64_t each = (count + blockDim.x - 1) / blockDim.x;
  const int64_t begin = threadIdx.x * each, end = begin + each < count ? begin + each : count;
  int32_t sum = 0;
  for (int64_t i = begin; i < end; ++i) sum += values[i];
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    int32_t before = 0;
    for (unsigned i = 0; i < blockDim.x; ++i) {
      const int32_t here = sums[i];
      sums[i] = before;
      before += here;
    }
  }
  __syncthreads();
  int32_t before = sums[threadIdx.x];
  for (int64_t i = begin; i < end; ++i) {
    const int32_t here = values[i];
    values[i] = before;
    before += here;
  }
}

// `values` null: rows in their order.
__global__ void scatter_kernel(int64_t rows, int shift, const int32_t* keys, const int32_t* values,
                               const int32_t* counts, int32_t* keys_out, int32_t* values_out) {
  __shared__ int32_t chunk[kChunk];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kChunk;
  const int64_t count = rows - first < kChunk ? rows - first : kChunk;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) chunk[i] = keys[first + i];
  __syncthreads();
  int32_t to = counts[static_cast<int64_t>(threadIdx.x) * gridDim.x + blockIdx.x];
  for (int64_t i = 0; i < count; ++i) {
    if (digit_of(chunk[i], shift) != static_cast<int32_t>(threadIdx.x)) continue;
    keys_out[to] = chunk[i];
    values_out[to] = values == nullptr ? static_cast<int32_t>(first + i) : values[first + i];
    ++to;
  }
}

// Where the rows of each token begin among sorted keys: the first that is not smaller.
__global__ void find_begins_kernel(int64_t rows, int64_t vocabulary, const int32_t* keys, int32_t* begin) {
  const int64_t token = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (token > vocabulary) return;
  int64_t low = 0, high = rows;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (keys[middle] < token) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  begin[token] = static_cast<int32_t>(low);
}

}  // namespace

template <class T>
void embed(cudaStream_t stream, int64_t rows, int64_t n, int64_t context, const int32_t* ids, int64_t first,
           int64_t count, const T* tokens, const T* positions, T* x) {
  each_row<T>(stream, rows, n, Embed<T>{ids, n, context, first, count, tokens, positions, x}, tokens,
              positions == nullptr ? tokens : positions, x);
}
template <class T>
void add_positions(cudaStream_t stream, int64_t rows, int64_t n, int64_t context, const T* positions, T* x) {
  each_row<T>(stream, rows, n, AddPositions<T>{n, context, positions, x}, positions, x);
}
template <class T>
void position_gradient(cudaStream_t stream, int64_t samples, int64_t n, int64_t context, const T* dx, Sum<T>* out,
                       bool add) {
  each_row<T>(stream, 1, context * n, PositionGradient<T>{samples, context * n, dx, out, add}, dx);
}

// Two sets of keys and one of values besides `order`, and the counts.
int64_t token_order_workspace(int64_t rows, int64_t) { return 3 * rows + kDigits * chunks_of(rows); }

void order_by_token(cudaStream_t stream, int64_t rows, int64_t vocabulary, const int32_t* ids, int32_t* order,
                    int32_t* begin, int32_t* work) {
  const auto chunks = static_cast<unsigned>(chunks_of(rows));
  int32_t *keys[2] = {work, work + rows}, *values[2] = {order, work + 2 * rows};
  int32_t* counts = work + 3 * rows;
  int passes = 1;
  while (passes < 4 && (vocabulary - 1) >> (8 * passes) != 0) ++passes;
  const int32_t *keys_in = ids, *values_in = nullptr;
  for (int pass = 0; pass < passes; ++pass) {
    // The last one writes to `order`.
    const int to = (passes - 1 - pass) % 2;
    const int shift = 8 * pass;
    launch(stream, chunks, static_cast<unsigned>(kDigits), 0, &count_digits_kernel, rows, shift, keys_in, counts);
    launch(stream, rows == 0 ? 0u : 1u, kSumThreads, 0, &sum_before_kernel, kDigits * chunks_of(rows), counts);
    launch(stream, chunks, static_cast<unsigned>(kDigits), 0, &scatter_kernel, rows, shift, keys_in, values_in, counts,
           keys[to], values[to]);
    keys_in = keys[to];
    values_in = values[to];
  }
  launch(stream, blocks_for(vocabulary + 1, kThreads), kThreads, 0, &find_begins_kernel, rows, vocabulary, keys_in,
         begin);
}

template <class T>
void token_gradient(cudaStream_t stream, int64_t n, int64_t first, int64_t count, const int32_t* order,
                    const int32_t* begin, const T* dx, Sum<T>* out) {
  const auto run = [&](auto kernel) {
    launch(stream, static_cast<unsigned>(count), 128u, 0, kernel, n, first, order, begin, dx, out);
  };
  if (takes_packs<T>(n, dx)) return run(&token_gradient_kernel<T, kPack<T>>);
  run(&token_gradient_kernel<T, 1>);
}

#define DTRAIN_EMBEDDINGS(T)                                                                                     \
  template void embed(cudaStream_t, int64_t, int64_t, int64_t, const int32_t*, int64_t, int64_t, const T*,       \
                      const T*, T*);                                                                             \
  template void add_positions(cudaStream_t, int64_t, int64_t, int64_t, const T*, T*);                            \
  template void position_gradient(cudaStream_t, int64_t, int64_t, int64_t, const T*, Sum<T>*, bool);             \
  template void token_gradient(cudaStream_t, int64_t, int64_t, int64_t, const int32_t*, const int32_t*, const T*, \
                               Sum<T>*);
DTRAIN_EMBEDDINGS(float)
DTRAIN_EMBEDDINGS(double)
DTRAIN_EMBEDDINGS(Bfloat16)

}  // namespace dtrain::engine::cuda
