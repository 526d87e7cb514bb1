// Products of what has many zeros. Run for each instruction set (discover.cmake); some have no other way for these.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "engine/kernels/crew.h"
#include "engine/kernels/kernels.h"
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
              kernel.gemm_then(m, n, k, {a.data(), k, 1, true}, right, left_out.data(), n, then, hands);
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
                               {150, 290}, {60, 125, 190, 250}, {1, 3}, {400}}) {
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
              const GemmA<float> left{a.data(), 1, m, of_a};
              const GemmB<float> right{b.data(), n, 1, of_b};
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

TEST_CASE("what is not finite is no zero") {
  const int64_t m = 64, n = 128, k = 128;
  auto a = with_zeros(m * k, k, 8);
  const auto b = random_matrix(k * n, 9);
  a[static_cast<size_t>(5 * k + 77)] = std::numeric_limits<float>::quiet_NaN();
  a[static_cast<size_t>(6 * k + 7)] = std::numeric_limits<float>::infinity();
  std::vector<float> c(static_cast<size_t>(m * n));
  kernels<float>().gemm_then(m, n, k, {a.data(), k, 1, true}, {b.data(), n, 1}, c.data(), n, {}, nullptr);
  for (int64_t i = 0; i < m * n; ++i) CHECK(std::isfinite(c[static_cast<size_t>(i)]) == (i / n != 5 && i / n != 6));
}

}  // namespace
}  // namespace dtrain::engine
