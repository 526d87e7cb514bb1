#include "engine/server/step_tree.h"

#include <doctest/doctest.h>

#include <cstring>

#include "tests/engine/server/servers.h"

namespace dtrain::engine {
namespace {

TEST_CASE("the sum has the same bits whichever nodes are delivered") {
  std::vector<Arena> leaves;
  for (unsigned leaf = 0; leaf < 8; ++leaf) leaves.push_back(random_arena(kBlock, leaf));
  const Arena expected = tree_sum(leaves, 0, 8);
  const std::vector<std::vector<std::pair<int, int>>> deliveries = {
      {{0, 8}},
      {{0, 4}, {4, 8}},
      {{0, 2}, {2, 4}, {4, 5}, {5, 6}, {6, 8}},
      {{7, 8}, {6, 7}, {5, 6}, {4, 5}, {3, 4}, {2, 3}, {1, 2}, {0, 1}}};
  for (const auto& delivery : deliveries) {
    StepTree sum(8);
    std::vector<Arena> nodes;
    nodes.reserve(8);
    for (const auto& [begin, end] : delivery) {
      REQUIRE(sum.has_node(begin, end));
      nodes.push_back(tree_sum(leaves, begin, end));
      sum.set(begin, end, nodes.back().data());
    }
    const float* found = sum.sum(0, kBlock);
    REQUIRE(found != nullptr);
    CHECK(std::memcmp(found, expected.data(), kBlock * sizeof(float)) == 0);
  }
}

TEST_CASE("absent leaves are left out, and none give nothing") {
  StepTree sum(4);
  CHECK(sum.sum(0, 4) == nullptr);
  const Arena a{1, 2, 3, 4}, b{10, 20, 30, 40};
  sum.set(1, 2, a.data());
  sum.set(2, 4, b.data());
  CHECK(sum.sum(0, 4)[0] == 11);
  CHECK(sum.sum(1, 3)[2] == 44);
  sum.clear();
  CHECK(sum.sum(0, 4) == nullptr);
}

TEST_CASE("only aligned powers of two are nodes") {
  const StepTree sum(8);
  CHECK(sum.has_node(6, 8));
  CHECK_FALSE(sum.has_node(1, 3));
  CHECK_FALSE(sum.has_node(0, 3));
  CHECK_FALSE(sum.has_node(4, 4));
  CHECK_FALSE(sum.has_node(8, 16));
  CHECK_FALSE(sum.has_node(-2, 0));
}

}  // namespace
}  // namespace dtrain::engine
