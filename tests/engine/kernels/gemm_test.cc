#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "engine/kernels/kernels.h"

namespace dtrain::engine {
namespace {

std::vector<float> random_matrix(int64_t elements, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(elements));
  for (float& each : values) each = normal(random);
  return values;
}

// Of sizes that fill no tile, and inner dimensions that are one piece or several.
TEST_CASE("a product is what its definition says, and each row has the same bits alone") {
  const int64_t m = 31, n = 75;
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
        kernels<float>().gemm(m, n, k, {a.data(), k, 1}, right, c.data(), n, add);
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
        kernels<float>().gemm(1, n, k, {a.data() + 17 * k, k, 1}, right, row.data(), n, add);
        CHECK(std::equal(row.begin(), row.end(), c.begin() + 17 * n));
      }
    }
  }
}

// The sum over k goes in the order of k, one multiply-add each, wherever k is cut.
TEST_CASE("a long inner dimension is summed in its order") {
  const int64_t m = 3, n = 32, k = 1500;
  const auto a = random_matrix(m * k, 4), b = random_matrix(k * n, 5);
  std::vector<float> whole(static_cast<size_t>(m * n));
  kernels<float>().gemm(m, n, k, {a.data(), k, 1}, {b.data(), n, 1}, whole.data(), n, false);
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

}  // namespace
}  // namespace dtrain::engine
