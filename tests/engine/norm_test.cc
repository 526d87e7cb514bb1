#include "engine/norm.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace dtrain::engine {
namespace {

std::vector<float> random_values(int64_t size) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(size));
  for (float& each : values) each = normal(random);
  return values;
}

TEST_CASE("the norm has the same bits whole and in parts cut at blocks") {
  const int64_t size = 10 * kBlock + 48;
  const std::vector<float> values = random_values(size);
  std::vector<double> whole(11), parts(11);
  block_squares({0, size}, values.data(), whole.data());
  block_squares({0, 3 * kBlock}, values.data(), parts.data());
  block_squares({3 * kBlock, size}, values.data() + 3 * kBlock, parts.data() + 3);
  CHECK(whole == parts);
  double expected = 0;
  for (const float each : values) expected += static_cast<double>(each) * each;
  CHECK(sum_of(whole) == doctest::Approx(expected).epsilon(1e-12));
}

TEST_CASE("a block's sum is finite if and only if its values are") {
  std::vector<float> values(2 * kBlock + 3, std::numeric_limits<float>::max());
  std::vector<double> sums(3);
  const Range all{0, 2 * kBlock + 3};
  block_squares(all, values.data(), sums.data());
  for (const double sum : sums) CHECK(std::isfinite(sum));
  values[kBlock + 5] = -std::numeric_limits<float>::infinity();
  values.back() = std::numeric_limits<float>::quiet_NaN();
  block_squares(all, values.data(), sums.data());
  CHECK(std::isfinite(sums[0]));
  CHECK_FALSE(std::isfinite(sums[1]));
  CHECK_FALSE(std::isfinite(sums[2]));
}

TEST_CASE("clipping shrinks a large norm to the limit and leaves a small one") {
  CHECK(clipped_scale(64, 0.5, 0) == 0.5);
  CHECK(clipped_scale(64, 0.5, 5) == 0.5);
  CHECK(clipped_scale(64, 0.5, 1) == doctest::Approx(0.125).epsilon(1e-6));
}

}  // namespace
}  // namespace dtrain::engine
