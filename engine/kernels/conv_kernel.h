// Convolution and pooling on blocks of kBlockImages images: [channel][row][column][image]. A row of one
// channel is contiguous, and a tap of the filter moves it by whole images: so every lane of a vector
// works, however few channels there are.
#pragma once

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "engine/kernels/kernels.h"
#include "engine/kernels/scratch.h"
#include "engine/kernels/vector.h"

namespace dtrain::engine::DTRAIN_ISA {

inline constexpr int kConvRows = DTRAIN_VECTOR_BYTES == 64 ? 5 : 4;     // output channels of a tile
inline constexpr int kConvVectors = DTRAIN_VECTOR_BYTES == 64 ? 5 : 2;  // along a row

// Part of one output row of R channels: out = filters over in, valid taps only.
template <class T, int R, int C>
void conv_tile(const ConvShape& s, const T* in, const T* filters, T* out, int64_t out_channel) {
  Vector<T> acc[R][C] = {};
  const int64_t taps = s.in_channels * s.kernel * s.kernel;
  const int64_t row = s.in_width * kBlockImages;
  const T* filter = filters;
  for (int64_t c = 0; c < s.in_channels; ++c) {
    for (int64_t y = 0; y < s.kernel; ++y) {
      const T* from = in + (c * s.in_height + y) * row;
      for (int64_t x = 0; x < s.kernel; ++x, from += kBlockImages, ++filter) {
        Vector<T> pixels[C];
#pragma GCC unroll 5
        for (int i = 0; i < C; ++i) pixels[i] = load(from + i * kLanes<T>);
#pragma GCC unroll 5
        for (int r = 0; r < R; ++r) {
          const Vector<T> weight = splat(filter[r * taps]);
#pragma GCC unroll 5
          for (int i = 0; i < C; ++i) acc[r][i] += weight * pixels[i];
        }
      }
    }
  }
#pragma GCC unroll 5
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 5
    for (int i = 0; i < C; ++i) store(out + r * out_channel + i * kLanes<T>, acc[r][i]);
  }
}

template <class T>
using ConvTile = void (*)(const ConvShape&, const T*, const T*, T*, int64_t);
template <class T, int... I>
constexpr std::array<ConvTile<T>, sizeof...(I)> conv_table(std::integer_sequence<int, I...>) {
  return {&conv_tile<T, I / kConvVectors + 1, I % kConvVectors + 1>...};
}
// [(channels - 1) kConvVectors + vectors - 1]
template <class T>
inline constexpr auto kConvTile =
    conv_table<T>(std::make_integer_sequence<int, kConvRows * kConvVectors>());

template <class T>
void conv(const ConvShape& s, const T* in, const T* filters, T* out) {
  const int64_t taps = s.in_channels * s.kernel * s.kernel;
  const int64_t vectors = s.out_width() * kBlockImages / kLanes<T>;
  const int64_t out_channel = s.out_height() * s.out_width() * kBlockImages;
  // What a part of a row needs of the input stays in the cache while all channels go over it.
  const int64_t parts = (vectors + kConvVectors - 1) / kConvVectors;
  for (int64_t y = 0; y < s.out_height(); ++y) {
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t v = vectors * part / parts, count = vectors * (part + 1) / parts - v;
      const T* from = in + y * s.in_width * kBlockImages + v * kLanes<T>;
      T* to = out + y * s.out_width() * kBlockImages + v * kLanes<T>;
      for (int64_t o = 0; o < s.out_channels; o += kConvRows, to += kConvRows * out_channel) {
        const int64_t channels = std::min<int64_t>(kConvRows, s.out_channels - o);
        kConvTile<T>[static_cast<size_t>((channels - 1) * kConvVectors + count - 1)](s, from, filters + o * taps, to,
                                                                                     out_channel);
      }
    }
  }
  // An odd width leaves half a vector where vectors hold two pixels.
  const int64_t rest = s.out_width() * kBlockImages - vectors * kLanes<T>;
  if (rest == 0) return;
  const int64_t row = s.in_width * kBlockImages;
  for (int64_t o = 0; o < s.out_channels; ++o) {
    for (int64_t y = 0; y < s.out_height(); ++y) {
      Vector<T> acc{};
      const T* filter = filters + o * taps;
      for (int64_t c = 0; c < s.in_channels; ++c) {
        for (int64_t k = 0; k < s.kernel; ++k) {
          const T* from = in + (c * s.in_height + y + k) * row + vectors * kLanes<T>;
          for (int64_t x = 0; x < s.kernel; ++x) {
            acc += splat(*filter++) * load_some(from + x * kBlockImages, rest);
          }
        }
      }
      store_some(out + o * out_channel + y * s.out_width() * kBlockImages + vectors * kLanes<T>, acc, rest);
    }
  }
}

// Taps of a filter that are computed at once, and output channels: all taps of a small one, where there are registers
// for them, or some next to each other.
template <int rows, int taps_y, int taps_x>
struct GradientTiles {
  static constexpr int kRows = rows, kTapsY = taps_y, kTapsX = taps_x, kSums = rows * taps_y * taps_x;
};
using WholeFilters = GradientTiles<3, 3, 3>;
using FilterRows = std::conditional_t<DTRAIN_VECTOR_BYTES == 64, GradientTiles<4, 1, 5>, GradientTiles<2, 1, 4>>;

// The gradients of R channels' filters at Y by X taps, over blocks [begin, end).
template <class T, class Tiles, int R, int X>
void gradient_tile(const ConvShape& s, int64_t begin, int64_t end, const T* in, const T* dout,
                   T* sums) {
  constexpr int Y = Tiles::kTapsY;
  Vector<T> acc[R][Y][X] = {};
  const int64_t in_row = s.in_width * kBlockImages, out_row = s.dout_width() * kBlockImages;
  const int64_t channel = s.dout_height() * out_row;
  const int64_t count = s.out_width() * kBlockImages;
  for (int64_t block = begin; block < end; ++block) {
    for (int64_t y = 0; y < s.out_height(); ++y) {
      const T* from = in + block * s.in_size() + y * in_row;
      const T* d = dout + block * s.dout_size() + y * out_row;
      for_vectors<T>(count, [&](auto load_at, auto) {
        Vector<T> gradient[R];
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) gradient[r] = load_at(d + r * channel);
#pragma GCC unroll 3
        for (int tap = 0; tap < Y; ++tap) {
#pragma GCC unroll 5
          for (int x = 0; x < X; ++x) {
            const Vector<T> pixels = load_at(from + tap * in_row + x * kBlockImages);
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) acc[r][tap][x] += gradient[r] * pixels;
          }
        }
      });
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int tap = 0; tap < Y; ++tap) {
      for (int x = 0; x < X; ++x) sums[(r * Y + tap) * Tiles::kTapsX + x] = sum_lanes<T>(acc[r][tap][x]);
    }
  }
}

template <class T>
using GradientTile = void (*)(const ConvShape&, int64_t, int64_t, const T*, const T*, T*);
template <class T, class Tiles, int... I>
constexpr std::array<GradientTile<T>, sizeof...(I)> gradient_table(std::integer_sequence<int, I...>) {
  return {&gradient_tile<T, Tiles, I / Tiles::kTapsX + 1, I % Tiles::kTapsX + 1>...};
}
// [(channels - 1) kTapsX + taps - 1]
template <class T, class Tiles>
inline constexpr auto kGradientTile =
    gradient_table<T, Tiles>(std::make_integer_sequence<int, Tiles::kRows * Tiles::kTapsX>());

template <class T, class Tiles>
void conv_filter_gradient_by(const ConvShape& s, Leaves leaves, const T* in, const T* dout, T* dfilters, bool add) {
  const int64_t in_row = s.in_width * kBlockImages, out_row = s.dout_width() * kBlockImages;
  const T* const first = dout + (s.dout_padding * out_row + s.dout_padding * kBlockImages);
  for (int64_t o = 0; o < s.out_channels; o += Tiles::kRows) {
    const int64_t channels = std::min<int64_t>(Tiles::kRows, s.out_channels - o);
    const T* const gradients = first + o * s.dout_height() * out_row;
    for (int64_t c = 0; c < s.in_channels; ++c) {
      for (int64_t y = 0; y < s.kernel; y += Tiles::kTapsY) {
        for (int64_t x = 0; x < s.kernel; x += Tiles::kTapsX) {
          const int64_t taps = std::min<int64_t>(Tiles::kTapsX, s.kernel - x);
          const T* from = in + (c * s.in_height + y) * in_row + x * kBlockImages;
          T waiting[kTreeLevels][Tiles::kSums];
          int depth = 0;
          int64_t begin = 0;
          for (int leaf = 0; leaf < leaves.count; ++leaf) {
            T sums[Tiles::kSums] = {};
            kGradientTile<T, Tiles>[static_cast<size_t>((channels - 1) * Tiles::kTapsX + taps - 1)](
                s, begin, leaves.ends[leaf], from, gradients, sums);
            begin = leaves.ends[leaf];
            for (int rest = leaf; rest & 1; rest >>= 1) {
              --depth;
              for (int i = 0; i < Tiles::kSums; ++i) sums[i] += waiting[depth][i];
            }
            std::copy_n(sums, Tiles::kSums, waiting[depth++]);
          }
          const T* sum = waiting[0];
          for (int64_t r = 0; r < channels; ++r) {
            for (int64_t tap = y; tap < y + Tiles::kTapsY; ++tap, sum += Tiles::kTapsX) {
              T* to = dfilters + (((o + r) * s.in_channels + c) * s.kernel + tap) * s.kernel + x;
              for (int64_t i = 0; i < taps; ++i) to[i] = add ? sum[i] + to[i] : sum[i];
            }
          }
        }
      }
    }
  }
}

// `leaves` counts blocks.
template <class T>
void conv_filter_gradient(const ConvShape& s, Leaves leaves, const T* in, const T* dout, T* dfilters,
                          bool add) {
  if (DTRAIN_VECTOR_BYTES == 64 && s.kernel == WholeFilters::kTapsX) {
    return conv_filter_gradient_by<T, WholeFilters>(s, leaves, in, dout, dfilters, add);
  }
  conv_filter_gradient_by<T, FilterRows>(s, leaves, in, dout, dfilters, add);
}

template <class T>
void conv_bias_gradient(const ConvShape& s, Leaves leaves, const T* dout, T* dbias, bool add) {
  const int64_t channel = s.dout_height() * s.dout_width() * kBlockImages;
  for (int64_t o = 0; o < s.out_channels; ++o) {
    T waiting[kTreeLevels];
    int depth = 0;
    int64_t begin = 0;
    for (int leaf = 0; leaf < leaves.count; ++leaf) {
      Vector<T> acc{};
      for (int64_t block = begin; block < leaves.ends[leaf]; ++block) {
        const T* from = dout + block * s.dout_size() + o * channel;  // with the padding, which is zero
        for_vectors<T>(channel, [&](auto load_at, auto) { acc += load_at(from); });
      }
      T sum = sum_lanes<T>(acc);
      begin = leaves.ends[leaf];
      for (int rest = leaf; rest & 1; rest >>= 1) sum += waiting[--depth];
      waiting[depth++] = sum;
    }
    dbias[o] = add ? waiting[0] + dbias[o] : waiting[0];
  }
}

// ---- pooling

template <class T>
struct PixelOf {
  typedef T Type __attribute__((vector_size(kBlockImages * sizeof(T))));
};
template <class T>
using Pixel = typename PixelOf<T>::Type;
template <class T>
DTRAIN_INLINE Pixel<T> load_pixel(const T* from) {
  Pixel<T> pixel;
  std::memcpy(&pixel, from, sizeof pixel);
  return pixel;
}

// y = relu(x + bias)
template <class T>
void bias_relu(const ConvShape& s, const T* x, const T* bias, T* y) {
  const int64_t channel = s.out_height() * s.out_width() * kBlockImages;
  for (int64_t c = 0; c < s.out_channels; ++c, x += channel, y += channel) {
    const Vector<T> b = splat(bias[c]);
    for_vectors<T>(channel, [&](auto load_at, auto store_at) { store_at(y, larger(load_at(x) + b, Vector<T>{})); });
  }
}

// pooled = max over 2x2 of relu(x + bias); `which` of the four it was, the first of equals.
template <class T>
void bias_relu_pool(const ConvShape& s, const T* x, const T* bias, T* pooled, uint8_t* which) {
  if (s.pool == 1) return bias_relu(s, x, bias, pooled);
  const int64_t row = s.out_width() * kBlockImages;
  for (int64_t c = 0; c < s.out_channels; ++c, x += s.out_height() * row) {
    const Pixel<T> b = bias[c] - Pixel<T>{};
    for (int64_t y = 0; y < s.out_height() / 2; ++y) {
      const T* from = x + 2 * y * row;
      for (int64_t i = 0; i < s.out_width() / 2; ++i, from += 2 * kBlockImages) {
        Pixel<T> most = load_pixel(from);
        auto index = most != most;  // of integers as wide as T, all zero but for NaN
        index = index & 0;
        const T* const others[] = {from + kBlockImages, from + row, from + row + kBlockImages};
        for (int k = 0; k < 3; ++k) {
          const Pixel<T> other = load_pixel(others[k]);
          const auto more = other > most;
          most = more ? other : most;
          index = more ? (index & 0) + (k + 1) : index;
        }
        most += b;
        most = most > Pixel<T>{} ? most : Pixel<T>{};
        std::memcpy(pooled, &most, sizeof most);
        pooled += kBlockImages;
        for (int lane = 0; lane < kBlockImages; ++lane) which[lane] = static_cast<uint8_t>(index[lane]);
        which += kBlockImages;
      }
    }
  }
}

// dx (padded, its padding untouched) = dy where y is not 0.
template <class T>
void relu_backward_into(const ConvShape& s, const T* y, const T* dy, T* dx) {
  const int64_t row = s.dout_width() * kBlockImages, count = s.out_width() * kBlockImages;
  dx += s.dout_padding * (row + kBlockImages);
  for (int64_t c = 0; c < s.out_channels; ++c, dx += 2 * s.dout_padding * row) {
    for (int64_t i = 0; i < s.out_height(); ++i, y += count, dy += count, dx += row) {
      for_vectors<T>(count, [&](auto load_at, auto store_at) {
        store_at(dx, load_at(y) > Vector<T>{} ? load_at(dy) : Vector<T>{});
      });
    }
  }
}

// dx (padded, its padding untouched) = the gradient of pooled where it came from, zero elsewhere.
template <class T>
void pool_relu_backward(const ConvShape& s, const T* pooled, const uint8_t* which, const T* dpooled,
                        T* dx) {
  if (s.pool == 1) return relu_backward_into(s, pooled, dpooled, dx);
  const int64_t row = s.dout_width() * kBlockImages;
  dx += s.dout_padding * (row + kBlockImages);
  for (int64_t c = 0; c < s.out_channels; ++c, dx += s.dout_height() * row) {
    for (int64_t y = 0; y < s.out_height() / 2; ++y) {
      T* to = dx + 2 * y * row;
      for (int64_t i = 0; i < s.out_width() / 2; ++i, to += 2 * kBlockImages) {
        const Pixel<T> kept = load_pixel(pooled) > Pixel<T>{} ? load_pixel(dpooled) : Pixel<T>{};
        auto index = kept != kept;
        for (int lane = 0; lane < kBlockImages; ++lane) index[lane] = which[lane];
        T* const places[] = {to, to + kBlockImages, to + row, to + row + kBlockImages};
        for (int k = 0; k < 4; ++k) {
          const Pixel<T> d = index == k ? kept : Pixel<T>{};
          std::memcpy(places[k], &d, sizeof d);
        }
        pooled += kBlockImages;
        dpooled += kBlockImages;
        which += kBlockImages;
      }
      // What an odd width or height leaves out of the pooling.
      if (s.out_width() % 2 != 0) {
        std::fill_n(to, kBlockImages, T(0));
        std::fill_n(to + row, kBlockImages, T(0));
      }
    }
    if (s.out_height() % 2 != 0) {
      std::fill_n(dx + (s.out_height() - 1) * row, s.out_width() * kBlockImages, T(0));
    }
  }
}

// ---- in and out of blocks

// `count` images of `pixels` values each, row-major, as one block; missing images are zero.
template <class T>
void rows_to_block(int64_t count, int64_t pixels, const T* rows, T* block) {
  if (count < kBlockImages) std::fill_n(block, pixels * kBlockImages, T(0));
  for (int64_t pixel = 0; pixel < pixels; ++pixel) {
    for (int64_t i = 0; i < count; ++i) block[pixel * kBlockImages + i] = rows[i * pixels + pixel];
  }
}

template <class T>
void block_to_rows(int64_t count, int64_t pixels, const T* block, T* rows) {
  for (int64_t pixel = 0; pixel < pixels; ++pixel) {
    for (int64_t i = 0; i < count; ++i) rows[i * pixels + pixel] = block[pixel * kBlockImages + i];
  }
}

}  // namespace dtrain::engine::DTRAIN_ISA
