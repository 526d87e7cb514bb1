// Convolution and pooling on blocks of kBlockImages images, [channel][row][column][image], a thread for each
// element: neighbouring threads have neighbouring images and pixels.
#include "engine/cuda/launch.h"

namespace dtrain::engine::cuda {

namespace {

constexpr int64_t kImages = kBlockImages;

// Of an element of [channels][height][width][kImages].
struct Element {
  int64_t channel, y, x, image;
};
__device__ Element element_of(int64_t i, int64_t height, int64_t width) {
  const int64_t pixel = i / kImages;
  return {pixel / width / height, pixel / width % height, pixel % width, i % kImages};
}

// The output of one block is a row of each_kernel().
template <class T>
struct Conv {
  ConvShape s;
  const T *in, *filters;
  T* out;
  template <int N>
  __device__ void run(int64_t i, int64_t at) const {
    static_assert(N == 1);
    const Element e = element_of(at, s.out_height(), s.out_width());
    const T* from = in + i / s.out_size() * s.in_size() + (e.y * s.in_width + e.x) * kImages + e.image;
    const T* filter = filters + e.channel * s.in_channels * s.kernel * s.kernel;
    Sum<T> sum = 0;
    for (int64_t c = 0; c < s.in_channels; ++c, from += s.in_height * s.in_width * kImages) {
      for (int64_t y = 0; y < s.kernel; ++y) {
        for (int64_t x = 0; x < s.kernel; ++x) {
          sum += wide(*filter++) * wide(from[(y * s.in_width + x) * kImages]);
        }
      }
    }
    out[i] = static_cast<T>(sum);
  }
};

// A block of threads for each tap of each filter.
template <class T>
__global__ void filter_gradient_kernel(ConvShape s, int64_t blocks, const T* in, const T* dout, Sum<T>* dfilters,
                                       bool add) {
  const int64_t taps = s.kernel * s.kernel;
  const int64_t tap = blockIdx.x % taps, channel = blockIdx.x / taps % s.in_channels;
  const int64_t out_channel = blockIdx.x / taps / s.in_channels;
  const int64_t pixels = s.out_height() * s.out_width() * kImages;
  in += ((channel * s.in_height + tap / s.kernel) * s.in_width + tap % s.kernel) * kImages;
  dout += ((out_channel * s.dout_height() + s.dout_padding) * s.dout_width() + s.dout_padding) * kImages;
  Sum<T> sum = 0;
  for (int64_t i = threadIdx.x; i < blocks * pixels; i += blockDim.x) {
    const int64_t block = i / pixels;
    const Element e = element_of(i % pixels, s.out_height(), s.out_width());
    sum += wide(in[block * s.in_size() + (e.y * s.in_width + e.x) * kImages + e.image]) *
           wide(dout[block * s.dout_size() + (e.y * s.dout_width() + e.x) * kImages + e.image]);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) dfilters[blockIdx.x] = add ? dfilters[blockIdx.x] + sum : sum;
}

template <class T>
__global__ void bias_gradient_kernel(ConvShape s, int64_t blocks, const T* dout, Sum<T>* dbias, bool add) {
  const int64_t pixels = s.out_height() * s.out_width() * kImages;
  dout += ((blockIdx.x * s.dout_height() + s.dout_padding) * s.dout_width() + s.dout_padding) * kImages;
  Sum<T> sum = 0;
  for (int64_t i = threadIdx.x; i < blocks * pixels; i += blockDim.x) {
    const Element e = element_of(i % pixels, s.out_height(), s.out_width());
    sum += wide(dout[i / pixels * s.dout_size() + (e.y * s.dout_width() + e.x) * kImages + e.image]);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) dbias[blockIdx.x] = add ? dbias[blockIdx.x] + sum : sum;
}

template <class T>
struct BiasReluPool {
  ConvShape s;
  const T *x, *bias;
  T* pooled;
  uint8_t* which;
  template <int N>
  __device__ void run(int64_t i, int64_t at) const {
    const Element e = element_of(at, s.pooled_height(), s.pooled_width());
    const int64_t row = s.out_width() * kImages;
    const T* from = x + i / s.pooled_size() * s.out_size() + (e.channel * s.out_height() + s.pool * e.y) * row +
                    s.pool * e.x * kImages + e.image;
    int best = 0;
    Sum<T> most = wide(from[0]);
    for (int k = 1; k < s.pool * s.pool; ++k) {
      const Sum<T> value = wide(from[k / 2 * row + k % 2 * kImages]);
      if (value > most || value != value) {
        most = value;
        best = k;
      }
    }
    most += wide(bias[e.channel]);
    pooled[i] = static_cast<T>(most < Sum<T>(0) ? Sum<T>(0) : most);
    if (s.pool > 1) which[i] = static_cast<uint8_t>(best);
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
  template <int N>
  __device__ void run(int64_t i, int64_t at) const {
    const Element e = element_of(at, s.out_height(), s.out_width());
    const int64_t height = s.pooled_height(), width = s.pooled_width(), block = i / s.out_size();
    const int64_t y = e.y / s.pool, x = e.x / s.pool;
    Sum<T> value = 0;
    if (y < height && x < width) {
      const int64_t from = block * s.pooled_size() + ((e.channel * height + y) * width + x) * kImages + e.image;
      const bool kept = s.pool == 1 || which[from] == e.y % 2 * 2 + e.x % 2;
      if (kept && wide(pooled[from]) > Sum<T>(0)) value = wide(dpooled[from]);
    }
    dx[block * s.dout_size() +
       ((e.channel * s.dout_height() + e.y + s.dout_padding) * s.dout_width() + e.x + s.dout_padding) * kImages +
       e.image] = static_cast<T>(value);
  }
};

template <class T>
struct RowsToBlocks {
  int64_t images, pixels;
  const T* rows;
  T* blocks;
  template <int N>
  __device__ void run(int64_t i, int64_t at) const {
    const int64_t image = i / (pixels * kImages) * kImages + at % kImages;
    blocks[i] = image < images ? rows[image * pixels + at / kImages] : static_cast<T>(Sum<T>(0));
  }
};
template <class T>
struct BlocksToRows {
  int64_t pixels;
  const T* blocks;
  T* rows;
  template <int N>
  __device__ void run(int64_t i, int64_t pixel) const {
    const int64_t image = i / pixels;
    rows[i] = blocks[(image / kImages * pixels + pixel) * kImages + image % kImages];
  }
};
template <class T>
struct RowsToFramedBlocks {
  int64_t images, channels, height, width, padding;
  const T* rows;
  T* blocks;
  template <int N>
  __device__ void run(int64_t i, int64_t at) const {
    const Element e = element_of(at, height, width);
    const int64_t pixels = channels * height * width, block = i / (pixels * kImages);
    const int64_t image = block * kImages + e.image, framed_width = width + 2 * padding;
    const int64_t framed_height = height + 2 * padding;
    const T value = image < images ? rows[image * pixels + at / kImages] : static_cast<T>(Sum<T>(0));
    blocks[(((block * channels + e.channel) * framed_height + e.y + padding) * framed_width + e.x + padding) * kImages +
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
  each<1>(stream, blocks, shape.out_size(), Conv<T>{shape, in, filters, out});
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
  each<1>(stream, blocks, shape.pooled_size(), BiasReluPool<T>{shape, x, bias, pooled, which});
}
template <class T>
void pool_relu_backward(cudaStream_t stream, const ConvShape& shape, int64_t blocks, const T* pooled,
                        const uint8_t* which, const T* dpooled, T* dx) {
  each<1>(stream, blocks, shape.out_size(), PoolReluBackward<T>{shape, pooled, which, dpooled, dx});
}
template <class T>
void rows_to_blocks(cudaStream_t stream, int64_t images, int64_t pixels, const T* rows, T* blocks) {
  each<1>(stream, blocks_of_images(images), pixels * kImages, RowsToBlocks<T>{images, pixels, rows, blocks});
}
template <class T>
void blocks_to_rows(cudaStream_t stream, int64_t images, int64_t pixels, const T* blocks, T* rows) {
  each<1>(stream, images, pixels, BlocksToRows<T>{pixels, blocks, rows});
}
template <class T>
void rows_to_framed_blocks(cudaStream_t stream, int64_t images, int64_t channels, int64_t height, int64_t width,
                           int64_t padding, const T* rows, T* blocks) {
  each<1>(stream, blocks_of_images(images), channels * height * width * kImages,
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
