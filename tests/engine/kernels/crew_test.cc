#include "engine/kernels/crew.h"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <new>
#include <numeric>
#include <thread>
#include <vector>

#include "engine/models/host_kernels.h"
#include "tests/engine/kernels/random_matrix.h"

namespace dtrain::engine {
namespace {

TEST_CASE("every hand of a crew does its part once, and the caller sees what they wrote") {
  for (const int hands : {1, 2, 3, 5}) {
    CAPTURE(hands);
    Crew crew(hands);
    REQUIRE(crew.hands() == hands);
    std::vector<int> times(static_cast<size_t>(hands));  // written without a lock: each has its own
    for (int round = 1; round <= 1000; ++round) {
      crew.run([&](int i) { ++times[static_cast<size_t>(i)]; });
      if (std::accumulate(times.begin(), times.end(), 0) != round * hands) FAIL("round ", round);
    }
    for (const int each : times) CHECK(each == 1000);
  }
}

TEST_CASE("what a crew shares is all of it, in ranges that begin at steps") {
  Crew crew(3);
  for (const int64_t count : {0, 1, 63, 64, 191, 192, 193, 500, 1000, 1535, 1537, 3000}) {
    for (const int64_t least : {1, 64}) {
      CAPTURE(count);
      CAPTURE(least);
      std::vector<int> visits(static_cast<size_t>(count));
      std::atomic<int> ranges{0}, crooked{0};
      Crew::share(&crew, count, 64, least, [&](Range range) {
        ++ranges;
        if (range.begin % 64 != 0) ++crooked;
        for (int64_t i = range.begin; i < range.end; ++i) ++visits[static_cast<size_t>(i)];
      });
      CHECK(visits == std::vector<int>(static_cast<size_t>(count), 1));
      CHECK(crooked == 0);
      if (count >= 192) CHECK(ranges == std::min<int64_t>((count + 63) / 64, 15));
      if (least == 64 && count < 192) CHECK(ranges == 1);
    }
  }
  // Whoever is held up does not hold up the rest: the others do all but what it has begun.
  std::atomic<int> done{0};
  Crew::share(&crew, 12, 1, 1, [&](Range range) {
    if (range.begin == 4) {
      while (done < 11) std::this_thread::yield();
    }
    ++done;
  });
  CHECK(done == 12);
  int alone = 0;
  Crew::share(nullptr, 1000, 64, 1, [&](Range range) { alone += range.size() == 1000 ? 1 : 100; });
  CHECK(alone == 1);
}

TEST_CASE("what a part throws the caller gets, once all others have ended") {
  Crew crew(3);
  for (int thrower = 0; thrower < 3; ++thrower) {
    CAPTURE(thrower);
    std::atomic<int> done{0};
    CHECK_THROWS_AS(crew.run([&](int i) {
      if (i == thrower) throw std::bad_alloc();
      ++done;
    }), std::bad_alloc);
    CHECK(done == 2);
    crew.run([&](int) { ++done; });
    CHECK(done == 5);
  }
  CHECK_THROWS_AS(crew.run([](int) { throw std::bad_alloc(); }), std::bad_alloc);
}

// What a crew computes together has the bits that one thread gives, for layers that hands can't share evenly too.
TEST_CASE("products of a crew are those of one thread") {
  Crew crew(3);
  constexpr int64_t kMany = 64;  // rows of a sample
  for (const auto& [m, n, k, rows_of_sample] :
       {std::array<int64_t, 4>{37, 512, 100, 1}, {64, 333, 784, 1}, {128, 10, 512, 1}, {5, 200, 64, 1}, {70, 530, 520, 1},
        {300, 333, 784, kMany}, {290, 333, 1601, kMany}}) {
    const HostKernels<float> alone(nullptr, rows_of_sample), together(&crew, rows_of_sample);
    CAPTURE(n);
    const auto a = random_matrix(m * k, 1), b = random_matrix(k * n, 2), bias = random_matrix(n, 3);
    const auto y = random_matrix(m * n, 4);
    const auto same = [&](const auto& product) {
      std::vector<float> one(static_cast<size_t>(m * n), -1), other = one;
      product(alone, one.data());
      product(together, other.data());
      CHECK(one == other);
      CHECK(one != std::vector<float>(one.size(), -1));
    };
    same([&](const auto& ops, float* c) { ops.gemm(m, n, k, {a.data(), k, 1}, {b.data(), n, 1}, c, n, false); });
    same([&](const auto& ops, float* c) { ops.gemm(m, n, k, {a.data(), k, 1}, {b.data(), 1, k}, c, n, true); });
    same([&](const auto& ops, float* c) { ops.gemm_bias(m, n, k, {a.data(), k, 1}, {b.data(), n, 1}, bias.data(), c); });
    same([&](const auto& ops, float* c) { ops.gemm_bias_relu(m, n, k, {a.data(), k, 1}, {b.data(), n, 1}, bias.data(), c); });
    const std::array<int64_t, 2> ends = {k / 3, k};
    const Leaves leaves{ends.data(), 2};
    same([&](const auto& ops, float* c) { ops.gemm_tree(m, n, leaves, {a.data(), k, 1}, {b.data(), n, 1}, c, n, false); });
    // Of what comes out, a sum of rows is the first row.
    const std::array<int64_t, 2> rows = {m / 3, m};
    same([&](const auto& ops, float* c) { ops.sum_rows(n, {rows.data(), 2}, y.data(), c, false); });
    same([&](const auto& ops, float* c) { ops.gemm_relu_backward(m, n, k, {a.data(), k, 1}, {b.data(), n, 1}, y.data(), c); });
  }
}

}  // namespace
}  // namespace dtrain::engine
