// Random inputs of a kernel, and how near its outputs come to the CPU's.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace dtrain::engine::cuda {

struct Random {
  Random() : seed(std::random_device{}()), engine(seed) {}
  std::vector<double> normal(int64_t count, double scale = 1) {
    std::normal_distribution<double> distribution(0, scale);
    std::vector<double> values(static_cast<size_t>(count));
    for (double& value : values) value = distribution(engine);
    return values;
  }
  std::vector<int32_t> below(int64_t limit, int64_t count) {
    std::vector<int32_t> values(static_cast<size_t>(count));
    for (int32_t& value : values) value = static_cast<int32_t>(engine() % static_cast<uint64_t>(limit));
    return values;
  }
  const uint64_t seed;
  std::mt19937_64 engine;
};

// `terms`: the length of what was summed, where it may cancel out.
inline void check_close(const std::vector<double>& got, const std::vector<double>& wanted, double tolerance,
                 double terms = 0) {
  REQUIRE(got.size() == wanted.size());
  double apart = 0, length = 0, largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    apart += std::pow(got[i] - wanted[i], 2);
    length += std::pow(wanted[i], 2);
    largest = std::max(largest, std::abs(got[i] - wanted[i]));
  }
  CHECK(std::isfinite(apart));
  CHECK(std::sqrt(apart) <= tolerance * (std::sqrt(length) + terms));
  CHECK(largest <= 100 * tolerance * (1 + terms + std::sqrt(length / static_cast<double>(got.size()))));
}

}  // namespace dtrain::engine::cuda
