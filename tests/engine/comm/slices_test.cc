#include "engine/comm/slices.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace dtrain::engine {
namespace {

TEST_CASE("slices are cut at blocks and tile the arena") {
  for (const int world : {1, 2, 5, 16}) {
    for (const int64_t elements : {int64_t{0}, int64_t{16}, 7 * kBlock + 16, 300 * kBlock, 301 * kBlock - 16}) {
      for (const int64_t bucket : {int64_t{0}, int64_t{1}, 9 * kBlock, 1000 * kBlock}) {
        CAPTURE(world);
        CAPTURE(elements);
        CAPTURE(bucket);
        const Slices slices(elements, world, bucket);
        std::vector<Range> all;
        for (int b = 0; b < slices.buckets(); ++b) {
          for (int p = 0; p < world; ++p) all.push_back(slices.of(p, b));
          CHECK(slices.of(0, world, b) == slices.bucket(b));
        }
        std::ranges::sort(all, {}, &Range::end);
        int64_t at = 0;
        for (const Range slice : all) {
          CHECK(slice.begin == at);
          CHECK((slice.begin % kBlock == 0 || slice.begin == elements));
          at = slice.end;
        }
        CHECK(at == elements);
      }
    }
  }
}

TEST_CASE("buckets are as large as asked for, and no smaller than pays") {
  CHECK(Slices(1000 * kBlock, 2, 0).buckets() == 1);
  CHECK(Slices(1000 * kBlock, 2, 100 * kBlock).buckets() == 10);
  CHECK(Slices(1099 * kBlock, 2, 100 * kBlock).buckets() == 10);
  CHECK(Slices(1000 * kBlock, 25, 1).buckets() == 10);
  CHECK(Slices(99 * kBlock, 2, 100 * kBlock).buckets() == 1);
}

TEST_CASE("a bucket is complete once all of it is") {
  const Slices slices(100 * kBlock, 2, 25 * kBlock);
  REQUIRE(slices.buckets() == 4);
  CHECK(slices.bucket(0) == Range{75 * kBlock, 100 * kBlock});
  CHECK(slices.from(100 * kBlock) == 0);
  CHECK(slices.from(75 * kBlock + 1) == 0);
  CHECK(slices.from(75 * kBlock) == 1);
  CHECK(slices.from(25 * kBlock) == 3);
  CHECK(slices.from(1) == 3);
  CHECK(slices.from(0) == 4);
}

}  // namespace
}  // namespace dtrain::engine
