// Convolution on blocks of images (pixel.h), as its definition says. A row of one channel is contiguous, and a tap of the
// filter moves it by whole images: so every lane of a vector works, however few channels there are.
#pragma once

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "engine/kernels/even_parts.h"
#include "engine/kernels/kernels.h"
#include "engine/kernels/vector.h"

namespace dtrain::engine::DTRAIN_ISA {

inline constexpr int kConvRows = DTRAIN_VECTOR_BYTES == 64 ? 5 : 4;     // output channels of a tile
inline constexpr int kConvVectors = DTRAIN_VECTOR_BYTES == 64 ? 5 : 3;  // along a row

// Input channels of which a part of a row reads this much stay in the first-level cache while all output channels go
// over them: few, for rows of different channels come to lie in the same sets of it.
inline constexpr int64_t kConvWindowBytes = 8 * 1024;

// `acc` = one tap's weights of R channels, `taps` apart, times C vectors of pixels (kFirst), or += that.
template <class T, bool kFirst, int R, int C>
DTRAIN_INLINE void add_tap(const T* from, const T* filter, int64_t taps, Vector<T> (&acc)[R][C]) {
  // Or the compiler keeps pixels for the next tap, in registers that sums need.
  __asm__("" : "+r"(from));
  Vector<T> pixels[C];
#pragma GCC unroll 5
  for (int i = 0; i < C; ++i) pixels[i] = load(from + i * kLanes<T>);
#pragma GCC unroll 5
  for (int r = 0; r < R; ++r) {
    const Vector<T> weight = splat(filter[r * taps]);
#pragma GCC unroll 5
    for (int i = 0; i < C; ++i) acc[r][i] = kFirst ? weight * pixels[i] : acc[r][i] + weight * pixels[i];
  }
}

// Part of one output row of R channels: `out` = filters over some input channels, valid taps only; kOnto: added to what
// is there.
template <class T, bool kOnto, int R, int C>
void conv_tile(const ConvShape& s, Range channels, const T* in, const T* filters, T* out, int64_t out_channel) {
  const int64_t taps = s.in_channels * s.kernel * s.kernel;
  const int64_t row = s.in_width * kBlockImages;
  const T* from = in + channels.begin * s.in_height * row;
  const T* filter = filters + channels.begin * s.kernel * s.kernel;
  const T* const last = filters + channels.end * s.kernel * s.kernel - 1;
  int64_t x = 0, y = 0;
  // One loop over rows, columns and channels: with three the compiler copies all sums between them.
  const auto next = [&] {
    ++filter;
    from += kBlockImages;
    if (++x < s.kernel) return;
    x = 0;
    from += row - s.kernel * kBlockImages;
    if (++y < s.kernel) return;
    y = 0;
    from += (s.in_height - s.kernel) * row;
  };
  Vector<T> acc[R][C];
  if constexpr (kOnto) {
#pragma GCC unroll 5
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 5
      for (int i = 0; i < C; ++i) acc[r][i] = load(out + r * out_channel + i * kLanes<T>);
    }
    add_tap<T, false>(from, filter, taps, acc);
  } else {
    add_tap<T, true>(from, filter, taps, acc);
  }
  while (filter != last) {
    next();
    add_tap<T, false>(from, filter, taps, acc);
  }
#pragma GCC unroll 5
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 5
    for (int i = 0; i < C; ++i) store(out + r * out_channel + i * kLanes<T>, acc[r][i]);
  }
}

template <class T>
using ConvTile = void (*)(const ConvShape&, Range, const T*, const T*, T*, int64_t);
template <class T, bool kOnto, int... I>
constexpr std::array<ConvTile<T>, sizeof...(I)> conv_table(std::integer_sequence<int, I...>) {
  return {&conv_tile<T, kOnto, I / kConvVectors + 1, I % kConvVectors + 1>...};
}
// [(channels - 1) kConvVectors + vectors - 1]
template <class T, bool kOnto>
inline constexpr auto kConvTile =
    conv_table<T, kOnto>(std::make_integer_sequence<int, kConvRows * kConvVectors>());

// Asks for the next row of some channels, into the second-level cache: what a convolution reads is often larger, and a
// row of a channel too short for the processor to foresee.
template <class T>
DTRAIN_INLINE void prefetch_row(const ConvShape& s, Range channels, const T* row, int64_t count) {
  for (int64_t c = channels.begin; c < channels.end; ++c) {
    const T* const from = row + c * s.in_height * s.in_width * kBlockImages;
    for (int64_t i = 0; i < count; i += 64 / static_cast<int64_t>(sizeof(T))) __builtin_prefetch(from + i, 0, 2);
  }
}

template <class T>
void direct_conv(const ConvShape& s, const T* in, const T* filters, T* out) {
  const int64_t taps = s.in_channels * s.kernel * s.kernel;
  const int64_t out_row = s.out_width() * kBlockImages, out_channel = s.out_height() * out_row;
  // Where these hold two pixels and the width is odd the last part of a row begins a pixel early, which is computed twice.
  const int64_t whole = out_row / kLanes<T>, vectors = whole == 0 ? 0 : (out_row + kLanes<T> - 1) / kLanes<T>;
  const int64_t window = s.kernel * (kConvVectors * kLanes<T> + (s.kernel - 1) * kBlockImages);
  const auto row = EvenParts::of_at_most(std::clamp<int64_t>(whole, 1, kConvVectors), vectors);
  const auto outs = EvenParts::of_at_most(kConvRows, s.out_channels);
  const auto ins = EvenParts::of_at_most(
      std::max<int64_t>(1, kConvWindowBytes / (window * static_cast<int64_t>(sizeof(T)))), s.in_channels);
  const EvenParts prefetched(s.in_channels, ins.count * outs.count);
  for (int64_t y = 0; y < s.out_height(); ++y) {
    for (int64_t part = 0; part < row.count; ++part) {
      const Range at = row[part];
      const int64_t first = std::min(at.begin * kLanes<T>, out_row - at.size() * kLanes<T>);
      const T* const from = in + y * s.in_width * kBlockImages + first;
      T* const to = out + y * out_row + first;
      for (int64_t i = 0; i < ins.count; ++i) {
        const auto& tiles = i == 0 ? kConvTile<T, false> : kConvTile<T, true>;
        for (int64_t o = 0; o < outs.count; ++o) {
          if (y + 1 < s.out_height()) {
            prefetch_row(s, prefetched[i * outs.count + o], from + s.kernel * s.in_width * kBlockImages,
                         at.size() * kLanes<T>);
          }
          const Range rows = outs[o];
          tiles[static_cast<size_t>((rows.size() - 1) * kConvVectors + at.size() - 1)](
              s, ins[i], from, filters + rows.begin * taps, to + rows.begin * out_channel, out_channel);
        }
      }
    }
  }
  if (vectors > 0) return;
  // Rows of one pixel where vectors hold two.
  const int64_t in_row = s.in_width * kBlockImages;
  for (int64_t o = 0; o < s.out_channels; ++o) {
    for (int64_t y = 0; y < s.out_height(); ++y) {
      Vector<T> acc{};
      const T* filter = filters + o * taps;
      for (int64_t c = 0; c < s.in_channels; ++c) {
        for (int64_t k = 0; k < s.kernel; ++k) {
          const T* from = in + (c * s.in_height + y + k) * in_row;
          for (int64_t x = 0; x < s.kernel; ++x) acc += splat(*filter++) * load_some(from + x * kBlockImages, out_row);
        }
      }
      store_some(out + o * out_channel + y * out_row, acc, out_row);
    }
  }
}

// Whether no row of pixels leaves a part of a vector.
template <class T>
inline constexpr bool kRowsAreVectors = kBlockImages % kLanes<T> == 0;

// Taps of a filter that are computed at once, and output channels: as many sums as there are registers for, and no
// fewer than multiply-adds are on their way at once.
template <int rows, int taps_y, int taps_x>
struct GradientTiles {
  static constexpr int kRows = rows, kTapsY = taps_y, kTapsX = taps_x, kSums = rows * taps_y * taps_x;
};
using SmallFilters = std::conditional_t<DTRAIN_VECTOR_BYTES == 64, GradientTiles<3, 3, 3>, GradientTiles<4, 1, 3>>;
using FilterRows = std::conditional_t<DTRAIN_VECTOR_BYTES == 64, GradientTiles<4, 1, 5>, GradientTiles<2, 1, 5>>;

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
      for_vectors<T, kRowsAreVectors<T>>(count, [&](auto load_at, auto) {
        const auto pixels_at = [&](int tap, int x) { return load_at(from + tap * in_row + x * kBlockImages); };
        // The fewer are held in registers while the others come by, one at a time.
        if constexpr (Y * X < R) {
          Vector<T> pixels[Y][X];
#pragma GCC unroll 3
          for (int tap = 0; tap < Y; ++tap) {
#pragma GCC unroll 5
            for (int x = 0; x < X; ++x) pixels[tap][x] = pixels_at(tap, x);
          }
#pragma GCC unroll 4
          for (int r = 0; r < R; ++r) {
            const Vector<T> gradient = load_at(d + r * channel);
#pragma GCC unroll 3
            for (int tap = 0; tap < Y; ++tap) {
#pragma GCC unroll 5
              for (int x = 0; x < X; ++x) acc[r][tap][x] += gradient * pixels[tap][x];
            }
          }
        } else {
          Vector<T> gradient[R];
#pragma GCC unroll 4
          for (int r = 0; r < R; ++r) gradient[r] = load_at(d + r * channel);
#pragma GCC unroll 3
          for (int tap = 0; tap < Y; ++tap) {
#pragma GCC unroll 5
            for (int x = 0; x < X; ++x) {
              const Vector<T> pixels = pixels_at(tap, x);
#pragma GCC unroll 4
              for (int r = 0; r < R; ++r) acc[r][tap][x] += gradient[r] * pixels;
            }
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
void direct_filter_gradient_by(const ConvShape& s, Leaves leaves, const T* in, const T* dout, T* dfilters, bool add) {
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
void direct_filter_gradient(const ConvShape& s, Leaves leaves, const T* in, const T* dout, T* dfilters,
                          bool add) {
  if (s.kernel == SmallFilters::kTapsX) {
    return direct_filter_gradient_by<T, SmallFilters>(s, leaves, in, dout, dfilters, add);
  }
  direct_filter_gradient_by<T, FilterRows>(s, leaves, in, dout, dfilters, add);
}

template <class T>
void conv_bias_gradient(const ConvShape& s, Leaves leaves, const T* dout, T* dbias, bool add) {
  const int64_t channel = s.dout_height() * s.dout_width() * kBlockImages;
  for (int64_t o = 0; o < s.out_channels; ++o) {
    T waiting[kTreeLevels];
    int depth = 0;
    int64_t begin = 0;
    for (int leaf = 0; leaf < leaves.count; ++leaf) {
      // Several sums, for each waits for itself.
      constexpr int kSums = 4;
      constexpr int64_t kStep = kSums * kLanes<T>;
      Vector<T> acc[kSums] = {};
      for (int64_t block = begin; block < leaves.ends[leaf]; ++block) {
        const T* from = dout + block * s.dout_size() + o * channel;  // with the padding, which is zero
        const T* const whole = from + channel / kStep * kStep;
        for (; from < whole; from += kStep) {
          for (int i = 0; i < kSums; ++i) acc[i] += load(from + i * kLanes<T>);
        }
        for_vectors<T>(channel % kStep, [&](auto load_at, auto) { acc[0] += load_at(from); });
      }
      T sum = sum_lanes<T>((acc[0] + acc[1]) + (acc[2] + acc[3]));
      begin = leaves.ends[leaf];
      for (int rest = leaf; rest & 1; rest >>= 1) sum += waiting[--depth];
      waiting[depth++] = sum;
    }
    dbias[o] = add ? waiting[0] + dbias[o] : waiting[0];
  }
}

}  // namespace dtrain::engine::DTRAIN_ISA
