#include "engine/random.h"

#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "engine/training/initial.h"

namespace dtrain::engine {
namespace {

TEST_CASE("Philox4x32-10 gives the numbers that its authors published") {
  using Words = std::array<uint32_t, 4>;
  CHECK(philox({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const uint32_t all = 0xffffffff;
  CHECK(philox({all, all, all, all}, {all, all}) ==
        Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("a row depends on seed, stream and row, and on all bits of them") {
  CHECK(RandomRow(1, 2, 3).uniform() == RandomRow(1, 2, 3).uniform());
  std::set<double> seen;
  const uint64_t high = uint64_t{1} << 40;
  for (const uint64_t seed : {uint64_t{1}, high}) {
    for (const uint32_t stream : {uint32_t{1}, uint32_t{1} << 31}) {
      for (const uint64_t row : {uint64_t{1}, high}) seen.insert(RandomRow(seed, stream, row).uniform());
    }
  }
  CHECK(seen.size() == 8);
}

TEST_CASE("what is drawn for different things is different") {
  std::set<double> seen;
  for (const uint32_t stream : {kShuffleStream, kDigitStream}) seen.insert(RandomRow(42, stream, 0).uniform());
  for (uint32_t tensor = 0; tensor < 1000; ++tensor) seen.insert(RandomRow(42, kParameterStream + tensor, 0).uniform());
  CHECK(seen.size() == 1002);
  // Pinned: a change would start every experiment from other parameters.
  CHECK(RandomRow(42, kParameterStream, 0).uniform() == 0x1.be2cc882c1173p-1);
  CHECK(RandomRow(42, kParameterStream, 0).normal() == 0x1.2219919e4dc5dp+0);
}

TEST_CASE("first values of a large tensor are one row of numbers, whoever draws which") {
  Layout layout;
  layout.add({.name = "small", .shape = {7}, .initial = Initial::Uniform, .scale = 0.5});
  layout.add({.name = "large", .shape = {1001, 1999}, .initial = Initial::Normal, .scale = 0.02});
  layout.add({.name = "ones", .shape = {3}, .initial = Initial::One});
  std::vector<float> params(static_cast<size_t>(layout.size()), -1);
  initialise(layout, 5, params);
  for (size_t tensor = 0; tensor < 3; ++tensor) {
    const Parameter& p = layout.parameters()[tensor];
    RandomRow random(5, kParameterStream + static_cast<uint32_t>(tensor), 0);
    int64_t others = 0;
    for (int64_t i = 0; i < p.size(); ++i) {
      const double wanted = tensor == 0 ? random.uniform(-0.5, 0.5) : tensor == 1 ? 0.02 * random.normal() : 1.0;
      if (params[static_cast<size_t>(p.offset + i)] != static_cast<float>(wanted)) ++others;
    }
    CHECK(others == 0);
  }
}

TEST_CASE("normal quantiles are those of the tables") {
  CHECK(normal_quantile(0.5) == 0);
  CHECK(normal_quantile(0.975) == doctest::Approx(1.959963984540054).epsilon(1e-14));
  CHECK(normal_quantile(0.025) == doctest::Approx(-1.959963984540054).epsilon(1e-14));
  CHECK(normal_quantile(0.75) == doctest::Approx(0.6744897501960817).epsilon(1e-14));
  CHECK(normal_quantile(1e-3) == doctest::Approx(-3.090232306167813).epsilon(1e-14));
  CHECK(normal_quantile(1e-10) == doctest::Approx(-6.361340902404056).epsilon(1e-14));
  CHECK(normal_quantile(1e-16) == doctest::Approx(-8.222082216130437).epsilon(1e-14));
}

TEST_CASE("many normal numbers have mean 0, deviation 1 and the tails that they should") {
  const int n = 200000;
  double sum = 0, squares = 0;
  int beyond = 0;
  RandomRow row(7, 3, 0);
  for (int i = 0; i < n; ++i) {
    const double x = row.normal();
    sum += x;
    squares += x * x;
    beyond += std::fabs(x) > 2;
  }
  CHECK(std::fabs(sum / n) < 0.01);
  CHECK(std::fabs(squares / n - 1) < 0.02);
  CHECK(std::fabs(beyond / double{n} - 0.0455) < 0.003);
}

TEST_CASE("draws below a bound are below it, and about equally often") {
  RandomRow row(1, 2, 3);
  std::array<int, 7> count{};
  for (int i = 0; i < 70000; ++i) ++count[row.below(7)];
  for (const int n : count) CHECK(std::abs(n - 10000) < 500);
}

}  // namespace
}  // namespace dtrain::engine
