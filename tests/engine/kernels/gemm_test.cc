// Run for each instruction set (discover.cmake).
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/kernels/crew.h"
#include "engine/kernels/kernels.h"
#include "tests/engine/kernels/places.h"
#include "tests/engine/kernels/random_matrix.h"

namespace dtrain::engine {
namespace {

// Of many rows, of which every kind of product is made.
constexpr int64_t kRowsOfSample = 64;

// Of sizes that fill no tile, and inner dimensions that are one piece or several.
TEST_CASE("a product is what its definition says, and each row has the same bits alone") {
  const int64_t m = 31, n = 139;
  for (const int64_t k : {1, 100, 192, 193, 800, 2001}) {
    for (const bool transposed : {false, true}) {
      for (const bool add : {false, true}) {
        CAPTURE(k);
        CAPTURE(transposed);
        CAPTURE(add);
        const auto a = random_matrix(m * k, 1), b = random_matrix(k * n, 2),
                   before = random_matrix(m * n, 3);
        const GemmB<float> right =
            transposed ? GemmB<float>{b.data(), 1, k} : GemmB<float>{b.data(), n, 1};
        std::vector<float> c = before;
        kernels<float>(kRowsOfSample).gemm(m, n, k, {a.data(), k, 1}, right, c.data(), n, add, nullptr);
        double worst = 0;
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < n; ++j) {
            const auto at = static_cast<size_t>(i * n + j);
            double sum = add ? double(before[at]) : 0;
            for (int64_t l = 0; l < k; ++l) {
              sum += double(a[static_cast<size_t>(i * k + l)]) *
                     double(right.data[l * right.row_stride + j * right.column_stride]);
            }
            worst = std::max(worst, std::abs(sum - double(c[at])));
          }
        }
        CHECK(worst < 1e-5 * std::sqrt(double(k)) * 4);

        std::vector<float> row(static_cast<size_t>(n));
        std::copy_n(before.begin() + 17 * n, n, row.begin());
        kernels<float>(kRowsOfSample).gemm(1, n, k, {a.data() + 17 * k, k, 1}, right, row.data(), n, add, nullptr);
        CHECK(std::equal(row.begin(), row.end(), c.begin() + 17 * n));
      }
    }
  }
}

// The sum over k goes in the order of k, one multiply-add each, wherever k is cut, in small products.
TEST_CASE("a long inner dimension is summed in its order") {
  const int64_t m = 3, n = 32, k = 1500;
  const auto a = random_matrix(m * k, 4), b = random_matrix(k * n, 5);
  std::vector<float> whole(static_cast<size_t>(m * n));
  kernels<float>().gemm(m, n, k, {a.data(), k, 1}, {b.data(), n, 1}, whole.data(), n, false, nullptr);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      float fused = 0, rounded = 0;  // as processors with multiply-adds do it, and without
      for (int64_t l = 0; l < k; ++l) {
        const float x = a[static_cast<size_t>(i * k + l)], y = b[static_cast<size_t>(l * n + j)];
        fused = std::fma(x, y, fused);
        const float product = x * y;
        rounded += product;
      }
      const float is = whole[static_cast<size_t>(i * n + j)];
      CHECK((is == fused || is == rounded));
    }
  }
}

// As large as to be cut into several blocks of rows and several chunks of columns, and neither evenly.
constexpr int64_t kManyRows = 211, kManyColumns = 301, kLong = 1601;

// Each way in which matrices may lie: a column of them is contiguous, or a row.
GemmA<float> left(const std::vector<float>& a, int64_t m, int64_t k, bool transposed) {
  return transposed ? GemmA<float>{a.data(), 1, m} : GemmA<float>{a.data(), k, 1};
}
GemmB<float> right(const std::vector<float>& b, int64_t n, int64_t k, bool transposed) {
  return transposed ? GemmB<float>{b.data(), 1, k} : GemmB<float>{b.data(), n, 1};
}

TEST_CASE("a product that is cut into blocks has the bits of its rows and columns alone") {
  const int64_t m = kManyRows, n = kManyColumns, k = kLong;
  const auto a = random_matrix(m * k, 6), b = random_matrix(k * n, 7);
  for (const bool a_transposed : {false, true}) {
    for (const bool b_transposed : {false, true}) {
      CAPTURE(a_transposed);
      CAPTURE(b_transposed);
      const GemmA<float> x = left(a, m, k, a_transposed);
      const GemmB<float> y = right(b, n, k, b_transposed);
      std::vector<float> whole(static_cast<size_t>(m * n)), row(static_cast<size_t>(n));
      kernels<float>(kRowsOfSample).gemm(m, n, k, x, y, whole.data(), n, false, nullptr);
      for (int64_t i = 0; i < m; ++i) {
        kernels<float>(kRowsOfSample)
            .gemm(1, n, k, {x.data + i * x.row_stride, x.row_stride, x.column_stride}, y, row.data(), n, false,
                  nullptr);
        REQUIRE(std::equal(row.begin(), row.end(), whole.begin() + i * n));
      }
      // And right: a few elements in double.
      for (int64_t i = 0; i < m; i += 13) {
        for (int64_t j = i % 7; j < n; j += 7) {
          double sum = 0;
          for (int64_t l = 0; l < k; ++l) {
            sum += double(x.data[i * x.row_stride + l * x.column_stride]) *
                   double(y.data[l * y.row_stride + j * y.column_stride]);
          }
          REQUIRE(std::abs(sum - double(whole[static_cast<size_t>(i * n + j)])) < 2e-3);
        }
      }
    }
  }
}

TEST_CASE("a product over the rows of a batch is the tree over the products of its leaves") {
  // Long ones and short ones, of which one is empty; and so short ones, of lengths that differ, that they go in pairs.
  const std::vector<std::vector<int64_t>> batches{
      {150, 150, 377, kLong}, {16, 16, 25, 48}, {8, 15, 24, 33}, {16, 32, 49, 65}, {1, 2, 4, 5}};
  for (const int64_t m : {int64_t{1}, int64_t{20}, kManyRows}) {
    for (const int64_t n : std::array<int64_t, 7>{10, 16, 48, 64, 97, 130, kManyColumns}) {
      for (size_t variant = 0; variant < 2 * batches.size(); ++variant) {
        const bool add = variant % 2 == 1;
        const std::vector<int64_t>& ends = batches[variant / 2];
        const int64_t k = ends.back();
        CAPTURE(m);
        CAPTURE(n);
        CAPTURE(k);
        CAPTURE(add);
        const auto a = random_matrix(k * m, 8), b = random_matrix(k * n, 9), before = random_matrix(m * n, 10);
        std::vector<float> c = before;
        kernels<float>(kRowsOfSample)
            .gemm_tree(m, n, {ends.data(), 4}, {a.data(), 1, m}, {b.data(), n, 1}, c.data(), n, add, nullptr, nullptr);
        std::vector<std::vector<float>> leaves(4, std::vector<float>(static_cast<size_t>(m * n)));
        int64_t begin = 0;
        for (size_t leaf = 0; leaf < 4; ++leaf) {
          kernels<float>(kRowsOfSample).gemm(m, n, ends[leaf] - begin, {a.data() + begin * m, 1, m},
                                {b.data() + begin * n, n, 1}, leaves[leaf].data(), n, false, nullptr);
          begin = ends[leaf];
        }
        bool same = true;
        for (size_t i = 0; i < c.size(); ++i) {
          const float sum = (leaves[0][i] + leaves[1][i]) + (leaves[2][i] + leaves[3][i]);
          same = same && c[i] == (add ? sum + before[i] : sum);
        }
        CHECK(same);
      }
    }
  }
}

// Whose leaves are longer than others' must not compute them in another way.
TEST_CASE("a product over the rows of a batch has the same bits by whoever its leaves are multiplied") {
  const int64_t m = kManyRows, n = kManyColumns;
  const auto& kernel = kernels<float>();
  for (const int64_t shortest : {3, 15, 16, 40}) {
    CAPTURE(shortest);
    const std::vector<int64_t> ends{shortest, 2 * shortest, 3 * shortest + 1, 4 * shortest + 2};
    const auto a = random_matrix(ends.back() * m, 8), b = random_matrix(ends.back() * n, 9);
    const auto product = [&](int64_t begin, std::vector<int64_t> of) {
      std::vector<float> c(static_cast<size_t>(m * n));
      for (int64_t& end : of) end -= begin;
      kernel.gemm_tree(m, n, {of.data(), static_cast<int>(of.size()), shortest}, {a.data() + begin * m, 1, m},
                       {b.data() + begin * n, n, 1}, c.data(), n, false, nullptr, nullptr);
      return c;
    };
    const auto whole = product(0, ends);
    const auto left = product(0, {ends[0], ends[1]}), right = product(ends[1], {ends[2], ends[3]});
    bool same = true;
    for (size_t i = 0; i < whole.size(); ++i) same = same && whole[i] == left[i] + right[i];
    CHECK(same);
  }
}

TEST_CASE("who takes a product over the rows of a batch gets each element once, and nothing is written") {
  Crew crew(3);
  for (const int64_t m : {int64_t{1}, int64_t{45}, kManyRows}) {
    for (const int64_t n : std::array<int64_t, 5>{10, 64, 97, 200, kManyColumns}) {
      for (const auto& ends : {std::vector<int64_t>{40}, std::vector<int64_t>{16, 16, 25, 48}}) {
        for (Crew* const hands : {static_cast<Crew*>(nullptr), &crew}) {
          CAPTURE(m);
          CAPTURE(n);
          CAPTURE(ends.size());
          const auto a = random_matrix(ends.back() * m, 8), b = random_matrix(ends.back() * n, 9);
          const Leaves leaves{ends.data(), static_cast<int>(ends.size())};
          std::vector<float> written(static_cast<size_t>(m * n)), untouched(written.size(), -7);
          Places places(untouched.data(), untouched.size());
          const auto product = kernels<float>(kRowsOfSample).gemm_tree;
          product(m, n, leaves, {a.data(), 1, m}, {b.data(), n, 1}, written.data(), n, false, hands, nullptr);
          product(m, n, leaves, {a.data(), 1, m}, {b.data(), n, 1}, untouched.data(), n, false, hands, &places);
          CHECK(places.values == written);
          CHECK(places.times == std::vector<int>(written.size(), 1));
          CHECK(untouched == std::vector<float>(written.size(), -7));
        }
      }
    }
  }
}

// Widths with and without a part of a panel, and of a vector.
TEST_CASE("what follows a product is what would follow it by itself") {
  const int64_t m = 37;
  const auto& kernel = kernels<float>(kRowsOfSample);
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{10, 50}, {64, 50}, {83, 50}, {128, 700}, {147, 700}}) {
    CAPTURE(n);
    CAPTURE(k);
    const auto a = random_matrix(m * k, 11), b = random_matrix(k * n, 12), plus = random_matrix(m * n, 13),
               bias = random_matrix(n, 14), factors = random_matrix(m * n, 15);
    const auto size = static_cast<size_t>(m * n);
    const GemmA<float> x{a.data(), k, 1};
    const GemmB<float> y{b.data(), n, 1};
    std::vector<float> plain(size);
    kernel.gemm(m, n, k, x, y, plain.data(), n, false, nullptr);
    const auto then = [&](const Then<float>& what) {
      std::vector<float> c(size, 99);
      kernel.gemm_then(m, n, k, x, y, c.data(), n, what, nullptr);
      return c;
    };
    std::vector<float> slopes(size);
    const auto with_bias = then({.bias = bias.data()});
    const auto with_relu = then({.bias = bias.data(), .relu = true});
    const auto only_relu = then({.relu = true});
    const auto onto = then({.plus = plus.data(), .bias = bias.data()});
    const auto times = then({.times = factors.data()});
    const auto where = then({.bias = bias.data(), .where = factors.data()});
    const auto gelu = then({.bias = bias.data(), .gelu_slope = slopes.data()});
    for (size_t i = 0; i < size; ++i) {
      const size_t column = i % static_cast<size_t>(n);
      const float sum = plain[i] + bias[column];
      REQUIRE(with_bias[i] == sum);
      REQUIRE(with_relu[i] == (sum > 0 ? sum : 0.0f));
      REQUIRE(only_relu[i] == (plain[i] > 0 ? plain[i] : 0.0f));
      REQUIRE(onto[i] == (plain[i] + plus[i]) + bias[column]);
      REQUIRE(times[i] == plain[i] * factors[i]);
      REQUIRE(where[i] == (factors[i] > 0 ? sum : 0.0f));
      const double v = double(sum), root = std::sqrt(2 / std::acos(-1.0));
      const double t = std::tanh(root * (v + 0.044715 * v * v * v));
      REQUIRE(double(gelu[i]) == doctest::Approx(v / 2 * (1 + t)).epsilon(1e-5).scale(1));
      const double slope = (1 + t) / 2 + v / 2 * (1 - t * t) * root * (1 + 3 * 0.044715 * v * v);
      REQUIRE(double(slopes[i]) == doctest::Approx(slope).epsilon(1e-5).scale(1));
    }
  }
}

// Of the roots of the mean squares, of 64 x 128 elements.
double relative_error(int64_t k, const std::vector<float>& a, const std::vector<float>& b,
                      const std::vector<float>& c) {
  double wrong = 0, all = 0;
  for (int64_t i = 0; i < 64; ++i) {
    for (int64_t j = 0; j < 128; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < k; ++l) {
        sum += double(a[static_cast<size_t>(i * k + l)]) * double(b[static_cast<size_t>(l * 128 + j)]);
      }
      const double error = double(c[static_cast<size_t>(i * 128 + j)]) - sum;
      wrong += error * error;
      all += sum * sum;
    }
  }
  return std::sqrt(wrong / all);
}

// However a processor does it: with parts of floats too.
TEST_CASE("a product is as near to the true one as one of floats, one after the other") {
  const int64_t m = 64, n = 128;
  for (const int64_t k : {171, 300, 784, 2000}) {
    for (const bool is_wide : {false, true}) {
      CAPTURE(k);
      CAPTURE(is_wide);
      auto a = random_matrix(m * k, 16), b = random_matrix(k * n, 17);
      if (is_wide) {  // from 2^-20 to 2^20, and products of about one size
        for (int64_t l = 0; l < k; ++l) {
          const int power = static_cast<int>(l % 41) - 20;
          for (int64_t i = 0; i < m; ++i) a[static_cast<size_t>(i * k + l)] *= std::ldexp(1.0f, power);
          for (int64_t j = 0; j < n; ++j) b[static_cast<size_t>(l * n + j)] *= std::ldexp(1.0f, -power);
        }
      }
      std::vector<float> c(static_cast<size_t>(m * n)), in_order(c.size());
      kernels<float>(kRowsOfSample).gemm(m, n, k, {a.data(), k, 1}, {b.data(), n, 1}, c.data(), n, false, nullptr);
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t l = 0; l < k; ++l) {
          for (int64_t j = 0; j < n; ++j) {
            float& sum = in_order[static_cast<size_t>(i * n + j)];
            sum = std::fma(a[static_cast<size_t>(i * k + l)], b[static_cast<size_t>(l * n + j)], sum);
          }
        }
      }
      CHECK(relative_error(k, a, b, c) <= 1.05 * relative_error(k, a, b, in_order));
    }
  }
}

TEST_CASE("what is not finite makes sums that are not, and only those it is part of") {
  const int64_t m = 40, n = 130, k = 200;
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    auto a = random_matrix(m * k, 18);
    const auto b = random_matrix(k * n, 19);
    a[17 * k + 100] = bad;
    std::vector<float> c(static_cast<size_t>(m * n));
    kernels<float>(kRowsOfSample).gemm(m, n, k, {a.data(), k, 1}, {b.data(), n, 1}, c.data(), n, false, nullptr);
    for (int64_t i = 0; i < m * n; ++i) REQUIRE(std::isfinite(c[static_cast<size_t>(i)]) == (i / n != 17));
    if (!std::isnan(bad)) continue;
    CAPTURE("relu");
    kernels<float>(kRowsOfSample).gemm_then(m, n, k, {a.data(), k, 1}, {b.data(), n, 1}, c.data(), n, {.relu = true}, nullptr);
    for (int64_t i = 0; i < m * n; ++i) REQUIRE(std::isfinite(c[static_cast<size_t>(i)]) == (i / n != 17));
  }
}

// Parts of floats reach less far than floats: what is lost is said in engine/README.md.
TEST_CASE("values at the ends of what a float can be give products, or what is known of parts") {
  const int64_t n = 130, k = 40;
  const Kernels<float>& kernel = kernels<float>(kRowsOfSample);
  const bool has_parts = std::string_view(kernel.isa) == "amx";
  const auto sum = [&](float x, float y) {
    std::vector<float> a(static_cast<size_t>(k)), b(static_cast<size_t>(k * n)), c(static_cast<size_t>(n));
    a[7] = x;
    b[7 * n + 3] = y;
    kernel.gemm(1, n, k, {a.data(), k, 1}, {b.data(), n, 1}, c.data(), n, false, nullptr);
    return c[3];
  };
  CHECK(sum(3.38e38f, 1) == 3.38e38f);
  CHECK(std::isfinite(sum(3.4e38f, 1)) == !has_parts);
  const float two_parts = std::ldexp(1.0f + std::ldexp(1.0f, -12), -120);
  CHECK(sum(std::ldexp(1.0f, -126), 1024) == std::ldexp(1.0f, -116));
  CHECK(sum(two_parts, 1024) == (has_parts ? std::ldexp(1.0f, -110) : 1024 * two_parts));
  CHECK(sum(std::ldexp(1.0f, -127), 1024) == (has_parts ? 0.0f : std::ldexp(1.0f, -117)));
}

}  // namespace
}  // namespace dtrain::engine
