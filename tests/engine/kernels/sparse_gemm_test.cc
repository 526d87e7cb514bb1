// Products of what has many zeros. Run for each instruction set (discover.cmake); some have no other way for these.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "engine/kernels/crew.h"
#include "engine/kernels/kernels.h"
#include "engine/kernels/trial.h"
#include "tests/engine/kernels/places.h"
#include "tests/engine/kernels/random_matrix.h"

namespace dtrain::engine {
namespace {

// Of each `row` elements another part is left: from none to all of them.
std::vector<float> with_zeros(int64_t elements, int64_t row, unsigned seed) {
  std::vector<float> values = random_matrix(elements, seed);
  std::mt19937 random(seed);
  for (int64_t i = 0; i < elements; ++i) {
    if (static_cast<int64_t>(random() % 9) >= i / row % 10) values[static_cast<size_t>(i)] = 0;
  }
  return values;
}

TEST_CASE("a product has the same bits whether what is zero is left out or not") {
  Crew crew(3);
  const auto& kernel = kernels<float>();
  for (const int64_t m : {1, 48, 63, 128}) {
    for (const int64_t n : {16, 128, 144, 400, 512}) {
      for (const int64_t k : {64, 128, 137, 192, 193, 500}) {
        for (const bool turned : {false, true}) {
          CAPTURE(m);
          CAPTURE(n);
          CAPTURE(k);
          CAPTURE(turned);
          const auto a = with_zeros(m * k, k, 1), b = random_matrix(k * n, 2), bias = random_matrix(n, 3), where = with_zeros(m * n, n, 4);
          const GemmB<float> right = turned ? GemmB<float>{b.data(), 1, k} : GemmB<float>{b.data(), n, 1};
          for (const Then<float>& then : std::vector<Then<float>>{{}, {.bias = bias.data(), .relu = true}, {.where = where.data()}, {.times = where.data()}}) {
            std::vector<float> all(static_cast<size_t>(m * n)), left_out(all);
            kernel.gemm_then(m, n, k, {a.data(), k, 1}, right, all.data(), n, then, nullptr);
            for (Crew* const hands : {static_cast<Crew*>(nullptr), &crew}) {
              kernel.gemm_then(m, n, k, {a.data(), k, 1, {0, 0.5f}}, right, left_out.data(), n, then, hands);
              CHECK(left_out == all);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("a product over the rows of a batch has the same bits whether zeros of either matrix are left out or not") {
  Crew crew(3);
  const auto& kernel = kernels<float>();
  for (const int64_t m : {48, 128, 208, 784}) {
    for (const int64_t n : {64, 128, 176, 512}) {
      // Of 16 samples a leaf all are summed at once; of more one or some at a time.
      for (const auto& ends : {std::vector<int64_t>{64}, {16, 32, 48, 64, 80, 96, 112, 128}, {16, 16, 25, 48}, {32, 65, 97, 129, 160, 192, 224, 256},
                               {150, 290}, {60, 125, 190, 250}, {1, 3}, {400}, {0, 0}}) {
        CAPTURE(m);
        CAPTURE(n);
        CAPTURE(ends.size());
        const int64_t k = ends.back();
        const auto a = with_zeros(m * k, m, 5), b = with_zeros(n * k, n, 6), before = random_matrix(m * n, 7);
        const Leaves leaves{ends.data(), static_cast<int>(ends.size())};
        for (const bool add : {false, true}) {
          std::vector<float> all = before;
          kernel.gemm_tree(m, n, leaves, {a.data(), 1, m}, {b.data(), n, 1}, all.data(), n, add, nullptr, nullptr);
          for (const auto& [of_a, of_b] : std::vector<std::pair<bool, bool>>{{true, false}, {false, true}, {true, true}}) {
            for (Crew* const hands : {static_cast<Crew*>(nullptr), &crew}) {
              CAPTURE(of_a);
              CAPTURE(of_b);
              const GemmA<float> left{a.data(), 1, m, {0, of_a ? 0.5f : 0}};
              const GemmB<float> right{b.data(), n, 1, of_b ? 0.5f : 0};
              std::vector<float> left_out = before;
              kernel.gemm_tree(m, n, leaves, left, right, left_out.data(), n, add, hands, nullptr);
              CHECK(left_out == all);
              if (add) continue;
              std::vector<float> untouched = before;
              Places taken(untouched.data(), untouched.size());
              kernel.gemm_tree(m, n, leaves, left, right, untouched.data(), n, false, hands, &taken);
              CHECK(untouched == before);
              CHECK(taken.values == all);
              CHECK(taken.times == std::vector<int>(all.size(), 1));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("with a trial all ways come to the same bits") {
  Crew crew(2);
  const auto& kernel = kernels<float>();
  const int64_t m = 784, n = 256, k = 128;
  const auto a = with_zeros(m * k, m, 5), b = with_zeros(n * k, n, 6), rows = with_zeros(k * m, m, 7), weights = random_matrix(m * n, 8);
  const std::vector<int64_t> ends{16, 32, 48, 64, 80, 96, 112, 128};
  const Leaves leaves{ends.data(), 8, 16};
  const std::vector<float> zeros(static_cast<size_t>(m * n));
  std::vector<float> gradient(zeros), product(static_cast<size_t>(k * n));
  kernel.gemm_tree(m, n, leaves, {a.data(), 1, m}, {b.data(), n, 1}, gradient.data(), n, false, nullptr, nullptr);
  kernel.gemm_then(k, n, m, {rows.data(), m, 1}, {weights.data(), n, 1}, product.data(), n, {.relu = true}, nullptr);
  Trial of_gradient, of_product;
  for (int i = 0; i < 20; ++i) {   // three ways and two, three times each
    CAPTURE(i);
    std::vector<float> untouched(zeros), found(product.size());
    Places taken(untouched.data(), untouched.size());
    kernel.gemm_tree(m, n, leaves, {a.data(), 1, m, {0, 0.5f}, &of_gradient}, {b.data(), n, 1, 0.5f}, untouched.data(), n, false, &crew, &taken);
    CHECK(taken.values == gradient);
    kernel.gemm_then(k, n, m, {rows.data(), m, 1, {0, 0.5f}, &of_product}, {weights.data(), n, 1}, found.data(), n, {.relu = true}, &crew);
    CHECK(found == product);
  }
}

// Images have a background.
constexpr float kBackground = -0.7f;
std::vector<float> with_background(int64_t elements, int64_t row, unsigned seed) {
  std::vector<float> values = with_zeros(elements, row, seed);
  for (float& each : values) each = each == 0 ? kBackground : each;
  return values;
}

// `plus` and the sum over k of a[k a_step] b[k b_step].
void check_sum(float found, const float* a, int64_t a_step, const float* b, int64_t b_step, int64_t k_count, float plus = 0) {
  double sum = plus, size = std::abs(plus);
  for (int64_t k = 0; k < k_count; ++k) {
    const double product = double{a[k * a_step]} * b[k * b_step];
    sum += product;
    size += std::abs(product);
  }
  CHECK(std::abs(found - sum) <= 4e-7 * size);
}

TEST_CASE("a background is left out of a product, whose rows have the same bits whatever the others are") {
  Crew crew(3);
  const auto& kernel = kernels<float>();
  for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{{40, 128, 137}, {130, 512, 784}, {1100, 208, 500}, {5, 144, 128}}) {
    for (const bool turned : {false, true}) {
      CAPTURE(m);
      CAPTURE(n);
      CAPTURE(k);
      CAPTURE(turned);
      const auto a = with_background(m * k, k, 1), b = random_matrix(k * n, 2), bias = random_matrix(n, 3);
      const GemmB<float> right = turned ? GemmB<float>{b.data(), 1, k} : GemmB<float>{b.data(), n, 1};
      const Then<float> then{.bias = bias.data()};
      const Common<float> common{kBackground, 0.5f};
      std::vector<float> all(static_cast<size_t>(m * n)), by_crew(all), by_rows(all);
      kernel.gemm_then(m, n, k, {a.data(), k, 1, common}, right, all.data(), n, then, nullptr);
      kernel.gemm_then(m, n, k, {a.data(), k, 1, common}, right, by_crew.data(), n, then, &crew);
      CHECK(by_crew == all);
      for (int64_t row = 0, rows = 1; row < m; row += rows, rows = std::min(2 * rows, m - row)) {
        kernel.gemm_then(rows, n, k, {a.data() + row * k, k, 1, common}, right, by_rows.data() + row * n, n, then, nullptr);
      }
      CHECK(by_rows == all);
      for (int64_t at = 0; at < m * n; at += 37) {
        const int64_t i = at / n, j = at % n;
        check_sum(all[static_cast<size_t>(at)], a.data() + i * k, 1, right.data + j * right.column_stride, right.row_stride, k, bias[static_cast<size_t>(j)]);
      }
    }
  }
}

TEST_CASE("a background is left out of gradients, which have the same bits however a batch is shared") {
  Crew crew(3);
  const auto& kernel = kernels<float>();
  for (const auto& [m, n, leaf] : std::vector<std::array<int64_t, 3>>{{784, 512, 16}, {784, 128, 8}, {128, 176, 33}, {2064, 128, 35}, {144, 208, 150}}) {
    CAPTURE(m);
    CAPTURE(n);
    CAPTURE(leaf);
    // The first leaves have a sample more, one of them two.
    std::vector<int64_t> ends;
    for (int64_t i = 1; i <= 8; ++i) ends.push_back(i * leaf + std::min<int64_t>(i, 3));
    const int64_t k = ends.back(), half = ends[3];
    const auto a = with_background(m * k, m, 5), b = with_zeros(n * k, n, 6);
    const GemmA<float> left{a.data(), 1, m, {kBackground, 0.6f}};
    const GemmB<float> right{b.data(), n, 1, 0.5f};
    const Leaves leaves{ends.data(), 8, leaf};
    std::vector<float> all(static_cast<size_t>(m * n)), by_crew(all), by_halves(all), untouched(all);
    kernel.gemm_tree(m, n, leaves, left, right, all.data(), n, false, nullptr, nullptr);
    kernel.gemm_tree(m, n, leaves, left, right, by_crew.data(), n, false, &crew, nullptr);
    CHECK(by_crew == all);
    Places taken(untouched.data(), untouched.size());
    kernel.gemm_tree(m, n, leaves, left, right, untouched.data(), n, false, &crew, &taken);
    CHECK(taken.values == all);
    CHECK(taken.times == std::vector<int>(all.size(), 1));

    const std::vector<int64_t> second{ends[4] - half, ends[5] - half, ends[6] - half, ends[7] - half};
    kernel.gemm_tree(m, n, {ends.data(), 4, leaf}, left, right, by_halves.data(), n, false, nullptr, nullptr);
    kernel.gemm_tree(m, n, {second.data(), 4, leaf}, {a.data() + half * m, 1, m, left.common}, {b.data() + half * n, n, 1, right.zeros}, by_halves.data(), n,
                     true, nullptr, nullptr);
    CHECK(by_halves == all);
    for (int64_t at = 0; at < m * n; at += 37) {
      check_sum(all[static_cast<size_t>(at)], a.data() + at / n, m, b.data() + at % n, n, k);
    }
  }
}

TEST_CASE("a gradient of one leaf has the bits of all multiplied where one row of weights is too few to leave a background out") {
  const int64_t n = 128, samples = 1024;
  const auto& kernel = kernels<float>();
  const auto background = with_background(samples, samples, 5), dy = random_matrix(samples * n, 6);
  std::vector<float> all(static_cast<size_t>(n)), given(all);
  const Leaves leaf{&samples, 1, samples};
  kernel.gemm_tree(1, n, leaf, {background.data(), 1, 1}, {dy.data(), n, 1}, all.data(), n, false, nullptr, nullptr);
  kernel.gemm_tree(1, n, leaf, {background.data(), 1, 1, {kBackground, 0.9f}}, {dy.data(), n, 1}, given.data(), n, false, nullptr, nullptr);
  CHECK(given == all);
}

TEST_CASE("what is not finite is no zero") {
  const int64_t m = 64, n = 128, k = 128;
  auto a = with_zeros(m * k, k, 8);
  const auto b = random_matrix(k * n, 9);
  a[static_cast<size_t>(5 * k + 77)] = std::numeric_limits<float>::quiet_NaN();
  a[static_cast<size_t>(6 * k + 7)] = std::numeric_limits<float>::infinity();
  std::vector<float> c(static_cast<size_t>(m * n));
  kernels<float>().gemm_then(m, n, k, {a.data(), k, 1, {0, 0.5f}}, {b.data(), n, 1}, c.data(), n, {}, nullptr);
  for (int64_t i = 0; i < m * n; ++i) CHECK(std::isfinite(c[static_cast<size_t>(i)]) == (i / n != 5 && i / n != 6));
}

}  // namespace
}  // namespace dtrain::engine
