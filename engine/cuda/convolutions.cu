// Convolution and pooling on blocks of kBlockImages images, [channel][row][column][image], a thread for each
// element: neighbouring threads have neighbouring images and pixels. Where in a block something lies is counted in 32
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

// op.run(element), of each of so many blocks. A block of 2^32 elements would be 17 GB of floats.
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

template <class T>
struct Conv {
  ConvShape s;
  const T *in, *filters;
  T* out;
  __device__ void run(const Element& e) const {
    const auto kernel = static_cast<int>(s.kernel);
    const int64_t row = s.in_width * kImages, channel = s.in_height * row;
    const T* from = in + e.block * s.in_size() + e.y * row + e.x * kImages + e.image;
    const T* filter = filters + e.channel * s.in_channels * kernel * kernel;
    Sum<T> sum = 0;
    for (int64_t c = 0; c < s.in_channels; ++c, from += channel) {
      const T* taps = from;
      for (int y = 0; y < kernel; ++y, taps += row) {
        for (int x = 0; x < kernel; ++x) sum += wide(*filter++) * wide(taps[x * static_cast<int>(kImages)]);
      }
    }
    out[e.block * s.out_size() + e.at] = static_cast<T>(sum);
  }
};

// The sum over value(block, y, j) of the rows of all blocks, j counting a row's pixels and images: a warp for each row.
template <class S, class Value>
__device__ S sum_over_rows(const ConvShape& s, int64_t blocks, Value value) {
  const auto height = static_cast<uint32_t>(s.out_height()), width = static_cast<uint32_t>(s.out_width()) * kImages;
  const uint32_t rows = static_cast<uint32_t>(blocks) * height;
  S sum = 0;
  for (uint32_t row = threadIdx.x / kWarp; row < rows; row += blockDim.x / kWarp) {
    const uint32_t block = row / height, y = row % height;
#pragma unroll 4
    for (uint32_t j = threadIdx.x % kWarp; j < width; j += kWarp) sum += value(block, y, j);
  }
  return block_sum(sum);
}

// A block of threads for each tap of each filter.
template <class T>
__global__ void filter_gradient_kernel(ConvShape s, int64_t blocks, const T* in, const T* dout, Sum<T>* dfilters,
                                       bool add) {
  const int64_t taps = s.kernel * s.kernel;
  const int64_t tap = blockIdx.x % taps, channel = blockIdx.x / taps % s.in_channels;
  const int64_t out_channel = blockIdx.x / taps / s.in_channels;
  const int64_t row = s.in_width * kImages, drow = s.dout_width() * kImages;
  in += (channel * s.in_height + tap / s.kernel) * row + tap % s.kernel * kImages;
  dout += (out_channel * s.dout_height() + s.dout_padding) * drow + s.dout_padding * kImages;
  const auto sum = sum_over_rows<Sum<T>>(s, blocks, [&](int64_t block, uint32_t y, uint32_t j) {
    return wide(in[block * s.in_size() + y * row + j]) * wide(dout[block * s.dout_size() + y * drow + j]);
  });
  if (threadIdx.x == 0) dfilters[blockIdx.x] = add ? dfilters[blockIdx.x] + sum : sum;
}

template <class T>
__global__ void bias_gradient_kernel(ConvShape s, int64_t blocks, const T* dout, Sum<T>* dbias, bool add) {
  const int64_t drow = s.dout_width() * kImages;
  dout += (blockIdx.x * s.dout_height() + s.dout_padding) * drow + s.dout_padding * kImages;
  const auto sum = sum_over_rows<Sum<T>>(s, blocks, [&](int64_t block, uint32_t y, uint32_t j) {
    return wide(dout[block * s.dout_size() + y * drow + j]);
  });
  if (threadIdx.x == 0) dbias[blockIdx.x] = add ? dbias[blockIdx.x] + sum : sum;
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
  each_element(stream, blocks, shape.out_channels, shape.out_height(), shape.out_width(),
               Conv<T>{shape, in, filters, out});
}
template <class T>
void conv_filter_gradient(cudaStream_t stream, const ConvShape& shape, int64_t blocks, const T* in, const T* dout,
                          Sum<T>* dfilters, bool add) {
  const int64_t count = shape.out_channels * shape.in_channels * shape.kernel * shape.kernel;
  launch(stream, static_cast<unsigned>(count), kThreads, 0, &filter_gradient_kernel<T>, shape, blocks, in, dout,
         dfilters, add);
}
template <class T>
void conv_bias_gradient(cudaStream_t stream, const ConvShape& shape, int64_t blocks, const T* dout, Sum<T>* dbias,
                        bool add) {
  launch(stream, static_cast<unsigned>(shape.out_channels), kThreads, 0, &bias_gradient_kernel<T>, shape, blocks, dout,
         dbias, add);
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
  template void conv_filter_gradient(cudaStream_t, const ConvShape&, int64_t, const T*, const T*, Sum<T>*, bool);    \
  template void conv_bias_gradient(cudaStream_t, const ConvShape&, int64_t, const T*, Sum<T>*, bool);                \
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
