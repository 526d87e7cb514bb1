// Convolutions by filters of 3 by 3 with fewer multiplications: F(2x2, 3x3) of A. Lavin, S. Gray, "Fast Algorithms for
// Convolutional Neural Networks" (2015), after S. Winograd. What 2 by 2 outputs of a channel take from another one, 4 by
// 4 pixels, becomes 16 numbers by adding and subtracting, and so does the filter between them; then 16 multiplications
// do where the definition takes 36. Over all channels these are products of matrices, 16 of them: planes.
//
// Outputs go by strips, a few rows of such tiles, so that the planes stay in the second-level cache.
#pragma once

#include <algorithm>

#include "engine/kernels/even_parts.h"
#include "engine/kernels/gemm_kernel.h"
#include "engine/kernels/kernels.h"
#include "engine/kernels/pixel.h"
#include "engine/kernels/scratch.h"
#include "engine/kernels/tree.h"
#include "engine/kernels/vector.h"

namespace dtrain::engine::DTRAIN_ISA {

// ---- along one axis; along the other as well, that is a tile. V: pixels, or as many filters' taps.

template <class V>
struct Two {
  V at[2];
};
template <class V>
struct Three {
  V at[3];
};
template <class V>
struct Four {
  V at[4];
};

template <class V>
DTRAIN_INLINE Four<V> of_pixels(V a, V b, V c, V d) {
  return {{a - c, b + c, c - b, b - d}};
}
template <class V>
DTRAIN_INLINE Four<V> of_filter(V a, V b, V c) {
  const V outer = (a + c) * 0.5f, inner = b * 0.5f;
  return {{a, outer + inner, outer - inner, c}};
}
template <class V>
DTRAIN_INLINE Two<V> to_outputs(V a, V b, V c, V d) {
  return {{a + (b + c), (b - c) - d}};
}
// From gradients of what the two above give to gradients of what they take.
template <class V>
DTRAIN_INLINE Four<V> of_output_gradients(V a, V b) {
  return {{a, a + b, a - b, -b}};
}
template <class V>
DTRAIN_INLINE Three<V> to_filter_gradient(V a, V b, V c, V d) {
  const V half = (b + c) * 0.5f;
  return {{a + half, (b - c) * 0.5f, half + d}};
}

// ---- planes

inline constexpr int kTile = 4, kPlanes = kTile * kTile;

// Matrices of so many rows and columns, plane [y][x] after plane. They don't lie a power of two apart, or they would push
// each other out of the first-level cache.
template <class T>
struct Planes {
  Planes(T* memory, int64_t rows, int64_t columns) : data(memory), ld(columns), step(step_of(rows, columns)) {}
  static int64_t elements(int64_t rows, int64_t columns) { return kPlanes * step_of(rows, columns); }
  T* operator[](int plane) const { return data + plane * step; }

  T* const data;
  const int64_t ld, step;

 private:
  static int64_t step_of(int64_t rows, int64_t columns) {
    constexpr int64_t kSome = 16;
    return (rows * columns + kSome - 1) / kSome * kSome + kSome;
  }
};

// Some of the tiles of the outputs: rows of them, all or, of one row, a part. Each is kBlockImages columns of the planes.
struct Strip {
  Range rows, tiles;
  int64_t columns() const { return rows.size() * tiles.size() * kBlockImages; }
};

// How outputs are cut.
class Strips {
 public:
  explicit Strips(const ConvShape& s)
      : rows_((s.out_height() + 1) / 2), of_row_(EvenParts::of_at_most(kTilesAtOnce, (s.out_width() + 1) / 2)) {
    if (of_row_.count == 1) rows_at_once_ = std::clamp<int64_t>(kTilesAtOnce / of_row_[0].size(), 1, rows_);
  }
  int64_t most_columns() const { return rows_at_once_ * of_row_[0].size() * kBlockImages; }
  // body(strip), one after the other.
  template <class Body>
  void run(const Body& body) const {
    for (int64_t row = 0; row < rows_; row += rows_at_once_) {
      for (int64_t part = 0; part < of_row_.count; ++part) {
        body(Strip{{row, std::min(rows_, row + rows_at_once_)}, of_row_[part]});
      }
    }
  }

 private:
  static constexpr int64_t kTilesAtOnce = 16;
  const int64_t rows_;
  const EvenParts of_row_;
  int64_t rows_at_once_ = 1;
};

// Of every channel's pixels: [in_channels][columns].
template <class T>
void planes_of_pixels(const ConvShape& s, const Strip& strip, const T* in, const Planes<T>& planes) {
  const int64_t in_row = s.in_width * kBlockImages, step = planes.step;
  for (int64_t c = 0; c < s.in_channels; ++c) {
    T* to = planes.data + c * planes.ld;
    for (int64_t row = strip.rows.begin; row < strip.rows.end; ++row) {
      const T* const from = in + (c * s.in_height + 2 * row) * in_row;
      const bool has_last = 2 * row + 3 < s.in_height;
      // What is beyond an odd height or width is zero.
      const auto column = [&](int64_t x) -> Four<Pixel<T>> {
        if (x >= s.in_width) return {};
        const T* const top = from + x * kBlockImages;
        return of_pixels(load_pixel(top), load_pixel(top + in_row), load_pixel(top + 2 * in_row),
                         has_last ? load_pixel(top + 3 * in_row) : Pixel<T>{});
      };
      Four<Pixel<T>> first = column(2 * strip.tiles.begin), second = column(2 * strip.tiles.begin + 1);
      for (int64_t tile = strip.tiles.begin; tile < strip.tiles.end; ++tile, to += kBlockImages) {
        const Four<Pixel<T>> third = column(2 * tile + 2), fourth = column(2 * tile + 3);
#pragma GCC unroll 4
        for (int y = 0; y < kTile; ++y) {
          const Four<Pixel<T>> v = of_pixels(first.at[y], second.at[y], third.at[y], fourth.at[y]);
#pragma GCC unroll 4
          for (int x = 0; x < kTile; ++x) store_pixel(to + (kTile * y + x) * step, v.at[x]);
        }
        first = third;
        second = fourth;
      }
    }
  }
}

// To outputs, of [out_channels][columns].
template <class T>
void outputs_of_planes(const ConvShape& s, const Strip& strip, const Planes<T>& planes, T* out) {
  const int64_t out_row = s.out_width() * kBlockImages, step = planes.step;
  for (int64_t o = 0; o < s.out_channels; ++o) {
    const T* from = planes.data + o * planes.ld;
    for (int64_t row = strip.rows.begin; row < strip.rows.end; ++row) {
      T* to = out + (o * s.out_height() + 2 * row) * out_row + 2 * strip.tiles.begin * kBlockImages;
      const bool has_second = 2 * row + 1 < s.out_height();
      for (int64_t tile = strip.tiles.begin; tile < strip.tiles.end; ++tile, from += kBlockImages, to += 2 * kBlockImages) {
        Two<Pixel<T>> columns[kTile];
#pragma GCC unroll 4
        for (int x = 0; x < kTile; ++x) {
          const auto at = [&](int y) { return load_pixel(from + (kTile * y + x) * step); };
          columns[x] = to_outputs(at(0), at(1), at(2), at(3));
        }
        const bool is_whole = 2 * tile + 1 < s.out_width();
#pragma GCC unroll 2
        for (int y = 0; y < 2; ++y) {
          if (y == 1 && !has_second) break;
          const auto pixels = to_outputs(columns[0].at[y], columns[1].at[y], columns[2].at[y], columns[3].at[y]);
          store_pixel(to + y * out_row, pixels.at[0]);
          if (is_whole) store_pixel(to + y * out_row + kBlockImages, pixels.at[1]);
        }
      }
    }
  }
}

// Of gradients of outputs, without the frame that these lie in: [out_channels][columns].
template <class T>
void planes_of_output_gradients(const ConvShape& s, const Strip& strip, const T* dout,
                                const Planes<T>& planes) {
  const int64_t dout_row = s.dout_width() * kBlockImages, step = planes.step;
  const T* const inside = dout + s.dout_padding * (dout_row + kBlockImages);
  for (int64_t o = 0; o < s.out_channels; ++o) {
    T* to = planes.data + o * planes.ld;
    for (int64_t row = strip.rows.begin; row < strip.rows.end; ++row) {
      const T* const from = inside + (o * s.dout_height() + 2 * row) * dout_row;
      const bool has_second = 2 * row + 1 < s.out_height();
      const auto column = [&](int64_t x) -> Four<Pixel<T>> {
        if (x >= s.out_width()) return {};
        const T* const top = from + x * kBlockImages;
        return of_output_gradients(load_pixel(top), has_second ? load_pixel(top + dout_row) : Pixel<T>{});
      };
      for (int64_t tile = strip.tiles.begin; tile < strip.tiles.end; ++tile, to += kBlockImages) {
        const Four<Pixel<T>> first = column(2 * tile), second = column(2 * tile + 1);
#pragma GCC unroll 4
        for (int y = 0; y < kTile; ++y) {
          const Four<Pixel<T>> d = of_output_gradients(first.at[y], second.at[y]);
#pragma GCC unroll 4
          for (int x = 0; x < kTile; ++x) store_pixel(to + (kTile * y + x) * step, d.at[x]);
        }
      }
    }
  }
}

// Elements of the planes of filters, [out_channels][in_channels].
inline int64_t winograd_filters(const ConvShape& s) { return Planes<float>::elements(s.out_channels, s.in_channels); }

template <class T>
void planes_of_filters(const ConvShape& s, const T* filters, T* memory) {
  const Planes<T> planes(memory, s.out_channels, s.in_channels);
  for (int64_t i = 0; i < s.out_channels * s.in_channels; ++i, filters += 9) {
    Four<T> columns[3];
    for (int x = 0; x < 3; ++x) columns[x] = of_filter(filters[x], filters[3 + x], filters[6 + x]);
    for (int y = 0; y < kTile; ++y) {
      const Four<T> u = of_filter(columns[0].at[y], columns[1].at[y], columns[2].at[y]);
      for (int x = 0; x < kTile; ++x) planes[kTile * y + x][i] = u.at[x];
    }
  }
}

// sums [3][3][count] += the gradients of `count` filters.
template <class T>
void add_filter_gradients(int64_t count, const Planes<T>& planes, T* sums) {
  for_vectors<T>(count, [&](auto load_at, auto store_at) {
    Three<Vector<T>> columns[kTile];
#pragma GCC unroll 4
    for (int x = 0; x < kTile; ++x) {
      const auto at = [&](int y) { return load_at(planes[kTile * y + x]); };
      columns[x] = to_filter_gradient(at(0), at(1), at(2), at(3));
    }
#pragma GCC unroll 3
    for (int y = 0; y < 3; ++y) {
      const auto g = to_filter_gradient(columns[0].at[y], columns[1].at[y], columns[2].at[y], columns[3].at[y]);
#pragma GCC unroll 3
      for (int x = 0; x < 3; ++x) {
        T* const to = sums + (3 * y + x) * count;
        store_at(to, load_at(to) + g.at[x]);
      }
    }
  });
}

// ---- convolutions. `filters`: planes_of_filters().

template <class T>
void winograd_conv(const ConvShape& s, const T* in, const T* filters, T* out) {
  const Strips strips(s);
  const int64_t columns = strips.most_columns(), pixels = Planes<T>::elements(s.in_channels, columns);
  T* const memory = scratch<T>(Scratch::Convolution, pixels + Planes<T>::elements(s.out_channels, columns));
  const Planes<T> v(memory, s.in_channels, columns), y(memory + pixels, s.out_channels, columns);
  const Planes<const T> u(filters, s.out_channels, s.in_channels);
  strips.run([&](const Strip& strip) {
    planes_of_pixels(s, strip, in, v);
    for (int i = 0; i < kPlanes; ++i) {
      gemm<T>(s.out_channels, strip.columns(), s.in_channels, {u[i], u.ld, 1}, {v[i], v.ld, 1}, y[i], y.ld, false);
    }
    outputs_of_planes(s, strip, y, out);
  });
}

template <class T>
void winograd_filter_gradient(const ConvShape& s, Leaves leaves, const T* in, const T* dout, T* dfilters, bool add) {
  const Strips strips(s);
  const int64_t columns = strips.most_columns(), count = s.out_channels * s.in_channels;
  const int64_t pixels = Planes<T>::elements(s.in_channels, columns);
  const int64_t outputs = Planes<T>::elements(s.out_channels, columns);
  T* const memory = scratch<T>(Scratch::Convolution, pixels + outputs + winograd_filters(s));
  const Planes<T> v(memory, s.in_channels, columns), dy(memory + pixels, s.out_channels, columns),
      du(memory + pixels + outputs, s.out_channels, s.in_channels);
  const T* const sums = tree_sum_rows<T>(9 * count, leaves, [&](int64_t block, T* sum) {
    bool is_first = true;
    strips.run([&](const Strip& strip) {
      planes_of_pixels(s, strip, in + block * s.in_size(), v);
      planes_of_output_gradients(s, strip, dout + block * s.dout_size(), dy);
      for (int i = 0; i < kPlanes; ++i) {
        gemm<T>(s.out_channels, s.in_channels, strip.columns(), {dy[i], dy.ld, 1}, {v[i], 1, v.ld}, du[i], du.ld,
                !is_first);
      }
      is_first = false;
    });
    add_filter_gradients(count, du, sum);
  });
  for (int64_t i = 0; i < count; ++i, dfilters += 9) {
    for (int tap = 0; tap < 9; ++tap) {
      const T sum = sums[tap * count + i];
      dfilters[tap] = add ? sum + dfilters[tap] : sum;
    }
  }
}

}  // namespace dtrain::engine::DTRAIN_ISA
