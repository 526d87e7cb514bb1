// What happens to blocks of images (pixel.h) beside convolutions: biases and pooling, and how images become blocks.
#pragma once

#include <algorithm>

#include "engine/kernels/kernels.h"
#include "engine/kernels/pixel.h"
#include "engine/kernels/transpose.h"
#include "engine/kernels/vector.h"

namespace dtrain::engine::DTRAIN_ISA {

// ---- pooling

// y = relu(x + bias)
template <class T>
void bias_relu(const ConvShape& s, const T* x, const T* bias, T* y) {
  const int64_t channel = s.out_height() * s.out_width() * kBlockImages;
  for (int64_t c = 0; c < s.out_channels; ++c, x += channel, y += channel) {
    const Vector<T> b = splat(bias[c]);
    for_vectors<T>(channel, [&](auto load_at, auto store_at) { store_at(y, relu(load_at(x) + b)); });
  }
}

// pooled = max over 2x2 of relu(x + bias); `which` of the four it was, the first of equals. What is no number is more
// than any.
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
          const auto more = (other > most) | (other != other);
          most = more ? other : most;
          index = more ? (index & 0) + (k + 1) : index;
        }
        most += b;
        most = relu(most);
        store_pixel(pooled, most);
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
          store_pixel(places[k], d);
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

// Whether an image's place in a block is a lane of one vector.
template <class T>
inline constexpr bool kTransposes = sizeof(Pixel<T>) <= DTRAIN_VECTOR_BYTES;

// kBlockImages rows of as many pixels become as many pixels of a block, or the other way.
template <class T>
DTRAIN_INLINE void transpose_pixels(const T* from, int64_t from_ld, T* to, int64_t to_ld) {
  Pixel<T> rows[kBlockImages];
#pragma GCC unroll 8
  for (int i = 0; i < kBlockImages; ++i) rows[i] = load_pixel(from + i * from_ld);
  transpose(rows);
#pragma GCC unroll 8
  for (int i = 0; i < kBlockImages; ++i) store_pixel(to + i * to_ld, rows[i]);
}

// `count` images of `pixels` values each, row-major, as one block; missing images are zero.
template <class T>
void rows_to_block(int64_t count, int64_t pixels, const T* rows, T* block) {
  if (count < kBlockImages) std::fill_n(block, pixels * kBlockImages, T(0));
  int64_t pixel = 0;
  if constexpr (kTransposes<T>) {
    for (; count == kBlockImages && pixel + kBlockImages <= pixels; pixel += kBlockImages) {
      transpose_pixels(rows + pixel, pixels, block + pixel * kBlockImages, kBlockImages);
    }
  }
  for (; pixel < pixels; ++pixel) {
    for (int64_t i = 0; i < count; ++i) block[pixel * kBlockImages + i] = rows[i * pixels + pixel];
  }
}

template <class T>
void block_to_rows(int64_t count, int64_t pixels, const T* block, T* rows) {
  int64_t pixel = 0;
  if constexpr (kTransposes<T>) {
    for (; count == kBlockImages && pixel + kBlockImages <= pixels; pixel += kBlockImages) {
      transpose_pixels(block + pixel * kBlockImages, kBlockImages, rows + pixel, pixels);
    }
  }
  for (; pixel < pixels; ++pixel) {
    for (int64_t i = 0; i < count; ++i) rows[i * pixels + pixel] = block[pixel * kBlockImages + i];
  }
}

}  // namespace dtrain::engine::DTRAIN_ISA
