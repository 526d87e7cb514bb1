// How gradients are cut into buckets.
#include <doctest/doctest.h>

#include "engine/cuda/gradient_sum.h"

namespace dtrain::engine::cuda {
namespace {

Layout layout_of(std::initializer_list<int64_t> sizes) {
  Layout layout;
  for (const int64_t size : sizes) layout.add({.name = "p", .shape = {size}});
  return layout;
}

TEST_CASE("buckets are whole parameters, the last ones first, and leave nothing out") {
  const Layout layout = layout_of({64, 16, 10, 32, 16});  // at 0, 64, 80, 96, 128
  using Ranges = std::vector<Range>;
  CHECK(buckets_of(layout, 64) == Ranges{{128, 144}, {96, 128}, {80, 96}, {64, 80}, {0, 64}});
  CHECK(buckets_of(layout, 192) == Ranges{{96, 144}, {0, 96}});
  CHECK(buckets_of(layout, 1'000'000) == Ranges{{0, 144}});
  CHECK(buckets_of(layout_of({7}), 1) == Ranges{{0, 16}});
  CHECK(buckets_of(Layout(), 1).empty());
}

}  // namespace
}  // namespace dtrain::engine::cuda
