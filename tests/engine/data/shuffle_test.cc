#include "engine/data/shuffle.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace dtrain::engine {
namespace {

std::vector<uint32_t> order_of(int64_t samples, uint64_t seed, int64_t number) {
  const Shuffle shuffle(samples, seed, number);
  std::vector<uint32_t> order;
  for (int64_t place = 0; place < samples; ++place) order.push_back(shuffle.sample_at(place));
  return order;
}

// How many standard deviations chi-square is above what chance gives on average.
double surprise(const std::vector<int64_t>& counts) {
  const double mean = std::accumulate(counts.begin(), counts.end(), 0.0) / static_cast<double>(counts.size());
  double chi = 0;
  for (const int64_t count : counts) chi += std::pow(static_cast<double>(count) - mean, 2) / mean;
  const auto freedom = static_cast<double>(counts.size() - 1);
  return (chi - freedom) / std::sqrt(2 * freedom);
}

TEST_CASE("each sample comes once, whatever their number") {
  for (int64_t samples = 1; samples <= 300; ++samples) {
    std::vector<uint32_t> order = order_of(samples, 7, samples);
    std::sort(order.begin(), order.end());
    for (int64_t i = 0; i < samples; ++i) REQUIRE(order[static_cast<size_t>(i)] == i);
  }
  for (const int64_t samples : {60'000, 65'536, 65'537, 1'000'003}) {
    std::vector<bool> seen(static_cast<size_t>(samples));
    for (const uint32_t sample : order_of(samples, 7, 0)) {
      REQUIRE(sample < samples);
      REQUIRE_FALSE(seen[sample]);
      seen[sample] = true;
    }
  }
}

TEST_CASE("the largest data set's places are spread over it") {
  const int64_t samples = 0xFFFFFFFF;
  const Shuffle shuffle(samples, 7, 0);
  std::vector<int64_t> counts(64);
  for (int64_t place = samples - 100'000; place < samples; ++place) ++counts[shuffle.sample_at(place) >> 26];
  CHECK(surprise(counts) < 5);
}

TEST_CASE("every sample comes about equally often to every place, and every two after one another") {
  for (const int64_t samples : {3, 50, 64, 1000}) {
    CAPTURE(samples);
    std::vector<int64_t> first(static_cast<size_t>(samples)), steps(static_cast<size_t>(samples) - 1);
    for (int64_t number = 0; number < 200'000; ++number) {
      const Shuffle shuffle(samples, 3, number);
      const int64_t place = number % (samples - 1);
      const int64_t a = shuffle.sample_at(place), b = shuffle.sample_at(place + 1);
      ++first[static_cast<size_t>(a)];
      ++steps[static_cast<size_t>((b - a + samples) % samples - 1)];
    }
    CHECK(surprise(first) < 5);
    CHECK(surprise(steps) < 5);
  }
}

TEST_CASE("seeds and numbers have orders of their own") {
  CHECK(order_of(1000, 1, 0) != order_of(1000, 1, 1));
  CHECK(order_of(1000, 1, 0) != order_of(1000, 2, 0));
}

TEST_CASE("the order is the same as ever: a resumed experiment goes on with it") {
  CHECK(order_of(8, 42, 0) == std::vector<uint32_t>{0, 5, 1, 4, 7, 3, 6, 2});
}

}  // namespace
}  // namespace dtrain::engine
