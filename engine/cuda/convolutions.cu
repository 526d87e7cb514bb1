// Convolution and pooling on blocks of kBlockImages images, [channel][row][column][image]: neighbouring threads have
// neighbouring images and pixels. Where in a block something lies is counted in 32
// bits, for a division by 64 takes a GPU as long as a dozen taps of a filter.
#include "engine/cuda/launch.h"

namespace dtrain::engine::cuda {

namespace {

constexpr uint32_t kImages = kBlockImages;

// Of a block [channels][height][width][kImages]: the at-th.
struct Element {
  int64_t block;
  uint32_t at, channel, y, x, image;
};

// op.run(element), of each of so many blocks, none larger than kMostOfBlock.
template <class Op>
__global__ void elements_kernel(int64_t blocks, uint32_t count, uint32_t height, uint32_t width, Op op) {
  const uint32_t at = blockIdx.x * blockDim.x + threadIdx.x, pixel = at / kImages, row = pixel / width;
  if (at >= count) return;
  for (int64_t block = blockIdx.y; block < blocks; block += gridDim.y) {
    op.run(Element{block, at, row / height, row % height, pixel % width, at % kImages});
  }
}
template <class Op>
void each_element(cudaStream_t stream, int64_t blocks, int64_t channels, int64_t height, int64_t width, Op op) {
  const int64_t count = channels * height * width * kImages;
  const dim3 grid(blocks_for(count, kThreads), static_cast<unsigned>(std::min<int64_t>(blocks, 65535)));
  launch(stream, grid, kThreads, 0, &elements_kernel<Op>, blocks, count, height, width, op);
}

// A thread computes one pixel of one image for some channels of the output, whose filters the block has in shared memory.
constexpr int kOutsOfThread = 4;
// Taps of these channels of the input are there at once: 16 KB of floats.
template <class T>
int64_t channels_at_once(const ConvShape& s) {
  constexpr int64_t kMost = 16384;
  const int64_t each = s.kernel * s.kernel * kOutsOfThread * static_cast<int64_t>(sizeof(Sum<T>));
  return std::clamp<int64_t>(kMost / each, 1, s.in_channels);
}

// K: the width of the filters, 0 where it is another than those.
template <class T, int K>
__global__ void __launch_bounds__(kThreads) conv_kernel(ConvShape s, int64_t blocks, int channels, const T* in, const T* filters, T* out) {
  using S = Sum<T>;
  const int kernel = K > 0 ? K : static_cast<int>(s.kernel), taps = kernel * kernel;
  const auto width = static_cast<uint32_t>(s.out_width()), plane = static_cast<uint32_t>(s.out_height()) * width * kImages;
  const uint32_t at = blockIdx.x * blockDim.x + threadIdx.x, pixel = at / kImages;
  const int row = static_cast<int>(s.in_width * kImages);
  const int64_t channel = s.in_height * row, first_out = static_cast<int64_t>(blockIdx.y) * kOutsOfThread;
  const int outs = static_cast<int>(std::min<int64_t>(kOutsOfThread, s.out_channels - first_out));
  S* const weights = shared_memory<S>();  // [channel][tap][out]
  for (int64_t block = blockIdx.z; block < blocks; block += gridDim.z) {
    const T* from = in + block * s.in_size() + static_cast<int64_t>(pixel / width) * row + pixel % width * kImages + at % kImages;
    S sum[kOutsOfThread] = {};
    for (int64_t first = 0; first < s.in_channels; first += channels) {
      const int count = static_cast<int>(std::min<int64_t>(channels, s.in_channels - first));
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < count * taps * kOutsOfThread; i += static_cast<int>(blockDim.x)) {
        const int o = i % kOutsOfThread, tap = i / kOutsOfThread;
        weights[i] = o < outs ? wide(filters[((first_out + o) * s.in_channels + first) * taps + tap]) : S(0);
      }
      __syncthreads();
      if (at >= plane) continue;
      const S* weight = weights;
      for (int c = 0; c < count; ++c, from += channel) {
#pragma unroll(K > 0 ? K : 1)
        for (int y = 0; y < kernel; ++y) {
#pragma unroll(K > 0 ? K : 1)
          for (int x = 0; x < kernel; ++x, weight += kOutsOfThread) {
            const S value = wide(from[y * row + x * static_cast<int>(kImages)]);
            const auto of_outs = load<kOutsOfThread>(weight);
#pragma unroll
            for (int o = 0; o < kOutsOfThread; ++o) sum[o] += of_outs[o] * value;
          }
        }
      }
    }
    if (at >= plane) continue;
    T* const to = out + block * s.out_size() + first_out * plane + at;
#pragma unroll
    for (int o = 0; o < kOutsOfThread; ++o) {
      if (o < outs) to[o * static_cast<int64_t>(plane)] = static_cast<T>(sum[o]);
    }
  }
}

// ---- gradients of filters and bias: each block of threads goes over some rows of the output, for one channel of the
// input, some of the output and some taps side by side; then the sums of all are summed, in order

constexpr int kTapsAtOnce = 5;
// Enough blocks for any GPU, and the same sums on each.
constexpr int64_t kGradientBlocks = 512;

struct GradientCut {
  int64_t rows, rows_each, parts;  // rows: of the output, in all blocks of images
  int64_t tap_groups, out_groups;
  int64_t count;                   // of filters' elements
};
GradientCut gradient_cut(const ConvShape& s, int64_t blocks) {
  GradientCut cut{};
  cut.rows = blocks * s.out_height();
  cut.tap_groups = (s.kernel + kTapsAtOnce - 1) / kTapsAtOnce;
  cut.out_groups = (s.out_channels + kOutsOfThread - 1) / kOutsOfThread;
  cut.count = s.out_channels * s.in_channels * s.kernel * s.kernel;
  const int64_t each = s.in_channels * s.kernel * cut.tap_groups * cut.out_groups;
  const int64_t parts = std::clamp<int64_t>(kGradientBlocks / each, 1, std::max<int64_t>(1, cut.rows));
  cut.rows_each = std::max<int64_t>(1, (cut.rows + parts - 1) / parts);
  cut.parts = std::max<int64_t>(1, (cut.rows + cut.rows_each - 1) / cut.rows_each);
  return cut;
}

// partial [part][filters, bias]
template <class T>
__global__ void __launch_bounds__(kThreads) conv_gradients_kernel(ConvShape s, GradientCut cut, const T* in, const T* dout, Sum<T>* partial) {
  using S = Sum<T>;
  constexpr int kSums = kOutsOfThread * (kTapsAtOnce + 1);
  __shared__ S of_threads[kSums][kThreads];
  const auto kernel = static_cast<int>(s.kernel), groups = static_cast<int>(cut.tap_groups);
  const int tap = static_cast<int>(blockIdx.x) % groups * kTapsAtOnce, tap_row = static_cast<int>(blockIdx.x) / groups % kernel;
  const int64_t channel = static_cast<int>(blockIdx.x) / groups / kernel;
  const int64_t first_out = static_cast<int64_t>(blockIdx.y) * kOutsOfThread;
  const int taps = kernel - tap < kTapsAtOnce ? kernel - tap : kTapsAtOnce;
  const int outs = static_cast<int>(std::min<int64_t>(kOutsOfThread, s.out_channels - first_out));
  const auto height = static_cast<uint32_t>(s.out_height()), length = static_cast<uint32_t>(s.out_width()) * kImages;
  const int64_t row = s.in_width * kImages, drow = s.dout_width() * kImages, plane = s.dout_height() * drow;
  in += (channel * s.in_height + tap_row) * row + tap * static_cast<int>(kImages);
  dout += (first_out * s.dout_height() + s.dout_padding) * drow + s.dout_padding * kImages;
  S sums[kOutsOfThread][kTapsAtOnce] = {}, bias[kOutsOfThread] = {};
  const int64_t begin = blockIdx.z * cut.rows_each, end = std::min<int64_t>(begin + cut.rows_each, cut.rows);
  for (int64_t at = begin; at < end; ++at) {
    const int64_t block = at / height, y = at % height;
    const T* const x_row = in + block * s.in_size() + y * row;
    const T* const d_row = dout + block * s.dout_size() + y * drow;
#pragma unroll 2
    for (uint32_t j = threadIdx.x; j < length; j += kThreads) {
      S values[kTapsAtOnce], gradients[kOutsOfThread];
#pragma unroll
      for (int t = 0; t < kTapsAtOnce; ++t) values[t] = t < taps ? wide(x_row[j + t * kImages]) : S(0);
#pragma unroll
      for (int o = 0; o < kOutsOfThread; ++o) gradients[o] = o < outs ? wide(d_row[o * plane + j]) : S(0);
#pragma unroll
      for (int o = 0; o < kOutsOfThread; ++o) {
        bias[o] += gradients[o];
#pragma unroll
        for (int t = 0; t < kTapsAtOnce; ++t) sums[o][t] += gradients[o] * values[t];
      }
    }
  }
#pragma unroll
  for (int o = 0; o < kOutsOfThread; ++o) {
#pragma unroll
    for (int t = 0; t < kTapsAtOnce; ++t) of_threads[o * (kTapsAtOnce + 1) + t][threadIdx.x] = sums[o][t];
    of_threads[o * (kTapsAtOnce + 1) + kTapsAtOnce][threadIdx.x] = bias[o];
  }
  __syncthreads();
  partial += blockIdx.z * (cut.count + s.out_channels);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int i = static_cast<int>(threadIdx.x) / kWarp; i < kSums; i += static_cast<int>(kThreads) / kWarp) {
    const int o = i / (kTapsAtOnce + 1), t = i % (kTapsAtOnce + 1);
    if (o >= outs) break;
    S sum = 0;
    for (int j = lane; j < static_cast<int>(kThreads); j += kWarp) sum += of_threads[i][j];
    sum = warp_sum(sum);
    if (lane != 0) continue;
    if (t < taps) partial[((first_out + o) * s.in_channels + channel) * kernel * kernel + tap_row * kernel + tap + t] = sum;
    if (t == kTapsAtOnce && blockIdx.x == 0) partial[cut.count + first_out + o] = sum;
  }
}

template <class S>
__global__ void sum_conv_gradients_kernel(int64_t parts, int64_t filters, int64_t outs, const S* partial, S* dfilters, S* dbias, bool add) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x, all = filters + outs;
  if (at >= all) return;
  S* const to = at < filters ? dfilters + at : dbias + (at - filters);
  S sum = 0;
#pragma unroll 8
  for (int64_t part = 0; part < parts; ++part) sum += partial[part * all + at];
  *to = add ? *to + sum : sum;
}

// An element of the pooled output.
template <class T>
struct BiasReluPool {
  ConvShape s;
  const T *x, *bias;
  T* pooled;
  uint8_t* which;
  int64_t pooled_size;
  __device__ void run(const Element& e) const {
    const auto pool = static_cast<uint32_t>(s.pool);
    const int64_t row = s.out_width() * kImages;
    const T* from = x + e.block * s.out_size() + (e.channel * s.out_height() + pool * e.y) * row +
                    pool * e.x * kImages + e.image;
    int best = 0;
    Sum<T> most = wide(from[0]);
    for (int k = 1; k < static_cast<int>(pool * pool); ++k) {
      const Sum<T> value = wide(from[k / 2 * row + k % 2 * static_cast<int>(kImages)]);
      if (value > most || value != value) {
        most = value;
        best = k;
      }
    }
    most += wide(bias[e.channel]);
    const int64_t to = e.block * pooled_size + e.at;
    pooled[to] = static_cast<T>(most < Sum<T>(0) ? Sum<T>(0) : most);
    if (pool > 1) which[to] = static_cast<uint8_t>(best);
  }
};

// Each element of the output that was pooled, and those that an odd size left over.
template <class T>
struct PoolReluBackward {
  ConvShape s;
  const T* pooled;
  const uint8_t* which;
  const T* dpooled;
  T* dx;
  int64_t height, width, size;  // pooled
  __device__ void run(const Element& e) const {
    const uint32_t y = s.pool == 1 ? e.y : e.y / 2, x = s.pool == 1 ? e.x : e.x / 2;
    Sum<T> value = 0;
    if (y < height && x < width) {
      const int64_t from = e.block * size + ((e.channel * height + y) * width + x) * kImages + e.image;
      const bool kept = s.pool == 1 || which[from] == e.y % 2 * 2 + e.x % 2;
      if (kept && wide(pooled[from]) > Sum<T>(0)) value = wide(dpooled[from]);
    }
    dx[e.block * s.dout_size() +
       ((e.channel * s.dout_height() + e.y + s.dout_padding) * s.dout_width() + e.x + s.dout_padding) * kImages +
       e.image] = static_cast<T>(value);
  }
};

// Elements of blocks of one row of `pixels`.
template <class T>
struct RowsToBlocks {
  int64_t images, pixels;
  const T* rows;
  T* blocks;
  __device__ void run(const Element& e) const {
    const int64_t image = e.block * kImages + e.image;
    blocks[e.block * pixels * kImages + e.at] = image < images ? rows[image * pixels + e.x] : static_cast<T>(Sum<T>(0));
  }
};
template <class T>
struct BlocksToRows {
  int64_t images, pixels;
  const T* blocks;
  T* rows;
  __device__ void run(const Element& e) const {
    const int64_t image = e.block * kImages + e.image;
    if (image < images) rows[image * pixels + e.x] = blocks[e.block * pixels * kImages + e.at];
  }
};
// Elements within the frame.
template <class T>
struct RowsToFramedBlocks {
  int64_t images, channels, height, width, padding;
  const T* rows;
  T* blocks;
  __device__ void run(const Element& e) const {
    const int64_t image = e.block * kImages + e.image, framed_height = height + 2 * padding;
    const int64_t framed_width = width + 2 * padding;
    const T value = image < images ? rows[image * channels * height * width + e.at / kImages] : static_cast<T>(Sum<T>(0));
    blocks[(((e.block * channels + e.channel) * framed_height + e.y + padding) * framed_width + e.x + padding) * kImages +
           e.image] = value;
  }
};
template <class T>
struct FlipFilters {
  ConvShape s;
  const T* filters;
  T* flipped;
  template <int N>
  __device__ void run(int64_t i, int64_t) const {
    const int64_t taps = s.kernel * s.kernel, tap = i % taps, in = i / taps % s.in_channels;
    const int64_t out = i / taps / s.in_channels;
    flipped[(in * s.out_channels + out) * taps + taps - 1 - tap] = filters[i];
  }
};

int64_t blocks_of_images(int64_t images) { return (images + kImages - 1) / kImages; }

}  // namespace

template <class T>
void conv(cudaStream_t stream, const ConvShape& shape, int64_t blocks, const T* in, const T* filters, T* out) {
  const int64_t channels = channels_at_once<T>(shape);
  const dim3 grid(blocks_for(shape.out_height() * shape.out_width() * kImages, kThreads),
                  blocks_for(shape.out_channels, kOutsOfThread), static_cast<unsigned>(std::min<int64_t>(blocks, 65535)));
  const size_t bytes = static_cast<size_t>(channels * shape.kernel * shape.kernel * kOutsOfThread) * sizeof(Sum<T>);
  const auto run = [&](auto kernel) { launch(stream, grid, kThreads, bytes, kernel, shape, blocks, channels, in, filters, out); };
  if (shape.kernel == 3) return run(&conv_kernel<T, 3>);
  if (shape.kernel == 5) return run(&conv_kernel<T, 5>);
  run(&conv_kernel<T, 0>);
}
int64_t conv_gradients_workspace(const ConvShape& shape, int64_t blocks) {
  const GradientCut cut = gradient_cut(shape, blocks);
  return cut.parts * (cut.count + shape.out_channels);
}
template <class T>
void conv_gradients(cudaStream_t stream, const ConvShape& shape, int64_t blocks, const T* in, const T* dout,
                    Sum<T>* dfilters, Sum<T>* dbias, bool add, Sum<T>* work) {
  const GradientCut cut = gradient_cut(shape, blocks);
  const dim3 grid(static_cast<unsigned>(shape.in_channels * shape.kernel * cut.tap_groups), static_cast<unsigned>(cut.out_groups),
                  static_cast<unsigned>(cut.parts));
  launch(stream, grid, kThreads, 0, &conv_gradients_kernel<T>, shape, cut, in, dout, work);
  launch(stream, blocks_for(cut.count + shape.out_channels, kThreads), kThreads, 0, &sum_conv_gradients_kernel<Sum<T>>, cut.parts,
         cut.count, shape.out_channels, work, dfilters, dbias, add);
}
template <class T>
void bias_relu_pool(cudaStream_t stream, const ConvShape& shape, int64_t blocks, const T* x, const T* bias, T* pooled,
                    uint8_t* which) {
  each_element(stream, blocks, shape.out_channels, shape.pooled_height(), shape.pooled_width(),
               BiasReluPool<T>{shape, x, bias, pooled, which, shape.pooled_size()});
}
template <class T>
void pool_relu_backward(cudaStream_t stream, const ConvShape& shape, int64_t blocks, const T* pooled,
                        const uint8_t* which, const T* dpooled, T* dx) {
  each_element(stream, blocks, shape.out_channels, shape.out_height(), shape.out_width(),
               PoolReluBackward<T>{shape, pooled, which, dpooled, dx, shape.pooled_height(), shape.pooled_width(),
                                   shape.pooled_size()});
}
template <class T>
void rows_to_blocks(cudaStream_t stream, int64_t images, int64_t pixels, const T* rows, T* blocks) {
  each_element(stream, blocks_of_images(images), 1, 1, pixels, RowsToBlocks<T>{images, pixels, rows, blocks});
}
template <class T>
void blocks_to_rows(cudaStream_t stream, int64_t images, int64_t pixels, const T* blocks, T* rows) {
  each_element(stream, blocks_of_images(images), 1, 1, pixels, BlocksToRows<T>{images, pixels, blocks, rows});
}
template <class T>
void rows_to_framed_blocks(cudaStream_t stream, int64_t images, int64_t channels, int64_t height, int64_t width,
                           int64_t padding, const T* rows, T* blocks) {
  each_element(stream, blocks_of_images(images), channels, height, width,
               RowsToFramedBlocks<T>{images, channels, height, width, padding, rows, blocks});
}
template <class T>
void flip_filters(cudaStream_t stream, const ConvShape& shape, const T* filters, T* flipped) {
  each<1>(stream, 1, shape.out_channels * shape.in_channels * shape.kernel * shape.kernel,
          FlipFilters<T>{shape, filters, flipped});
}

#define DTRAIN_CONVOLUTIONS(T)                                                                                       \
  template void conv(cudaStream_t, const ConvShape&, int64_t, const T*, const T*, T*);                               \
  template void conv_gradients(cudaStream_t, const ConvShape&, int64_t, const T*, const T*, Sum<T>*, Sum<T>*, bool,  \
                               Sum<T>*);                                                                             \
  template void bias_relu_pool(cudaStream_t, const ConvShape&, int64_t, const T*, const T*, T*, uint8_t*);           \
  template void pool_relu_backward(cudaStream_t, const ConvShape&, int64_t, const T*, const uint8_t*, const T*, T*); \
  template void rows_to_blocks(cudaStream_t, int64_t, int64_t, const T*, T*);                                        \
  template void blocks_to_rows(cudaStream_t, int64_t, int64_t, const T*, T*);                                        \
  template void rows_to_framed_blocks(cudaStream_t, int64_t, int64_t, int64_t, int64_t, int64_t, const T*, T*);      \
  template void flip_filters(cudaStream_t, const ConvShape&, const T*, T*);
DTRAIN_CONVOLUTIONS(float)
DTRAIN_CONVOLUTIONS(double)
DTRAIN_CONVOLUTIONS(Bfloat16)

}  // namespace dtrain::engine::cuda
