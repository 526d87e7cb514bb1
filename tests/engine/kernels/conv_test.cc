// Run for each instruction set (discover.cmake).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/kernels/kernels.h"
#include "tests/engine/kernels/random_matrix.h"

namespace dtrain::engine {
namespace {

// Rows of one pixel, of an odd and an even number of them; few channels and several groups of them; gradients in
// frames and without.
constexpr ConvShape kShapes[] = {
    {1, 6, 5, 9, 5, 0},  {2, 3, 3, 4, 3, 1},   {3, 7, 3, 8, 10, 0},
    {70, 9, 3, 5, 8, 2}, {40, 4, 5, 6, 16, 4}, {5, 11, 1, 3, 12, 0}, {21, 6, 5, 7, 17, 1},
    {16, 16, 3, 6, 6, 0}, {17, 33, 3, 9, 12, 2}, {37, 19, 3, 12, 9, 1}, {16, 20, 3, 35, 7, 0},
};
constexpr int64_t kBlocks = 4;

double difference(const std::vector<double>& expected, const std::vector<float>& found, size_t terms) {
  double worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) worst = std::max(worst, std::abs(expected[i] - double(found[i])));
  return worst / std::sqrt(double(terms));
}

// Calls body(out, filter, in) with the indices, in one block, of every multiply-add; out lies as with `padding`.
template <class Body>
void for_terms(const ConvShape& s, int64_t padding, Body body) {
  const int64_t height = s.out_height() + 2 * padding, width = s.out_width() + 2 * padding;
  for (int64_t o = 0; o < s.out_channels; ++o) {
    for (int64_t c = 0; c < s.in_channels; ++c) {
      for (int64_t ky = 0; ky < s.kernel; ++ky) {
        for (int64_t kx = 0; kx < s.kernel; ++kx) {
          const int64_t filter = ((o * s.in_channels + c) * s.kernel + ky) * s.kernel + kx;
          for (int64_t y = 0; y < s.out_height(); ++y) {
            for (int64_t x = 0; x < s.out_width(); ++x) {
              const int64_t out = (o * height + y + padding) * width + x + padding;
              const int64_t in = (c * s.in_height + y + ky) * s.in_width + x + kx;
              for (int64_t i = 0; i < kBlockImages; ++i) {
                body(static_cast<size_t>(out * kBlockImages + i), static_cast<size_t>(filter),
                     static_cast<size_t>(in * kBlockImages + i));
              }
            }
          }
        }
      }
    }
  }
}

TEST_CASE("a convolution is what its definition says") {
  for (const ConvShape& s : kShapes) {
    CAPTURE(s.in_channels);
    CAPTURE(s.out_width());
    const int64_t taps = s.in_channels * s.kernel * s.kernel;
    const auto in = random_matrix(s.in_size(), 1), filters = random_matrix(s.out_channels * taps, 2);
    std::vector<float> out(static_cast<size_t>(s.out_size()));
    std::vector<float> room(static_cast<size_t>(kernels<float>().filter_room(s)));
    kernels<float>().conv(s, in.data(), kernels<float>().ready_filters(s, filters.data(), room.data()), out.data());
    std::vector<double> expected(out.size());
    for_terms(s, 0, [&](size_t o, size_t f, size_t i) { expected[o] += double(filters[f]) * double(in[i]); });
    CHECK(difference(expected, out, static_cast<size_t>(taps)) < 4e-6);
  }
}

TEST_CASE("gradients of filters and biases are what their definition says") {
  for (const ConvShape& s : kShapes) {
    CAPTURE(s.in_channels);
    CAPTURE(s.out_width());
    const int64_t frame = s.dout_padding;
    const auto in = random_matrix(kBlocks * s.in_size(), 3);
    auto dout = random_matrix(kBlocks * s.dout_size(), 4);
    for (size_t at = 0; at < dout.size(); ++at) {
      const int64_t pixel = static_cast<int64_t>(at) / kBlockImages;
      const int64_t x = pixel % s.dout_width() - frame, y = pixel / s.dout_width() % s.dout_height() - frame;
      if (x < 0 || x >= s.out_width() || y < 0 || y >= s.out_height()) dout[at] = 0;
    }
    const int64_t taps = s.in_channels * s.kernel * s.kernel;
    const auto before = random_matrix(s.out_channels * taps, 5), bias_before = random_matrix(s.out_channels, 6);
    const int64_t ends[] = {1, 1, 3, kBlocks};  // of leaves: one is empty
    const auto terms = static_cast<size_t>(kBlocks * s.out_height() * s.out_width() * kBlockImages);
    for (const bool add : {false, true}) {
      CAPTURE(add);
      std::vector<float> dfilters = before, dbias = bias_before;
      kernels<float>().conv_filter_gradient(s, {ends, 4}, in.data(), dout.data(), dfilters.data(), add);
      kernels<float>().conv_bias_gradient(s, {ends, 4}, dout.data(), dbias.data(), add);
      std::vector<double> expected(before.size()), bias_expected(bias_before.size());
      if (add) expected.assign(before.begin(), before.end());
      if (add) bias_expected.assign(bias_before.begin(), bias_before.end());
      for (int64_t block = 0; block < kBlocks; ++block) {
        const float *x = in.data() + block * s.in_size(), *d = dout.data() + block * s.dout_size();
        for_terms(s, frame, [&](size_t o, size_t f, size_t i) { expected[f] += double(d[o]) * double(x[i]); });
        const int64_t channel = s.dout_size() / s.out_channels;
        for (int64_t i = 0; i < s.dout_size(); ++i) bias_expected[static_cast<size_t>(i / channel)] += double(d[i]);
      }
      CHECK(difference(expected, dfilters, terms) < 4e-6);
      CHECK(difference(bias_expected, dbias, terms) < 4e-6);
    }
  }
}

TEST_CASE("images go into blocks and back, with zeros for those that a block lacks") {
  for (const int64_t pixels : {1, 7, 8, 27, 64}) {
    for (const int64_t count : {1, 5, int{kBlockImages}}) {
      CAPTURE(pixels);
      CAPTURE(count);
      const auto rows = random_matrix(count * pixels, 7);
      std::vector<float> block(static_cast<size_t>(pixels * kBlockImages), 1), back(rows.size());
      kernels<float>().rows_to_block(count, pixels, rows.data(), block.data());
      for (int64_t p = 0; p < pixels; ++p) {
        for (int64_t i = 0; i < kBlockImages; ++i) {
          const float expected = i < count ? rows[static_cast<size_t>(i * pixels + p)] : 0;
          CHECK(block[static_cast<size_t>(p * kBlockImages + i)] == expected);
        }
      }
      kernels<float>().block_to_rows(count, pixels, block.data(), back.data());
      CHECK(back == rows);
    }
  }
}

TEST_CASE("what is no number is the largest of its four, and no ReLU makes a number of it") {
  const float none = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t pool : {1, 2}) {
    ConvShape s{1, 3, 3, 6, 6, 0};
    s.pool = pool;
    const float bias[] = {-1, 0, 1};
    for (int64_t bad = 0; bad < s.out_size(); ++bad) {
      auto x = random_matrix(s.out_size(), 8);
      x[static_cast<size_t>(bad)] = none;
      std::vector<float> y(static_cast<size_t>(s.pooled_size()));
      std::vector<uint8_t> which(y.size());
      kernels<float>().bias_relu_pool(s, x.data(), bias, y.data(), which.data());
      const int64_t pixel = bad / kBlockImages, row = pixel / s.out_width(), column = pixel % s.out_width();
      const int64_t place = (row / pool * s.pooled_width() + column / pool) * kBlockImages + bad % kBlockImages;
      for (int64_t i = 0; i < s.pooled_size(); ++i) REQUIRE(std::isnan(y[static_cast<size_t>(i)]) == (i == place));
      if (pool == 2) REQUIRE(which[static_cast<size_t>(place)] == row % 2 * 2 + column % 2);
    }
  }
}

}  // namespace
}  // namespace dtrain::engine
