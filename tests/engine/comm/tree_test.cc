#include "engine/comm/tree.h"

#include <doctest/doctest.h>

#include <cstring>
#include <random>

namespace dtrain::engine {
namespace {

// node(k, i) as it is defined.
std::vector<float> node_sum(const std::vector<std::vector<float>>& leaves, Node node) {
  if (node.level == 0) return leaves[static_cast<size_t>(node.index)];
  std::vector<float> sum = node_sum(leaves, {node.level - 1, 2 * node.index});
  const std::vector<float> right = node_sum(leaves, {node.level - 1, 2 * node.index + 1});
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += right[i];
  return sum;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_CASE("the sum is the same bits for every world, and wherever it is put") {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 1);
  for (const int64_t count : {1, 17, 1024, 2500}) {
    for (int world = 1; world <= 17; ++world) {
      const int64_t count_of_leaves = leaf_count(world);
      std::vector<std::vector<float>> leaves(static_cast<size_t>(count_of_leaves));
      for (auto& leaf : leaves) {
        for (int64_t i = 0; i < count; ++i) leaf.push_back(normal(random) * 1e3f);
      }
      int root_level = 0;
      while ((1 << root_level) < count_of_leaves) ++root_level;
      const std::vector<float> expected = node_sum(leaves, {root_level, 0});

      std::vector<Node> parts;
      for (int p = 0; p < world; ++p) {
        for (const Node node : largest_nodes(owned_leaves(p, world, count_of_leaves))) parts.push_back(node);
      }
      std::vector<std::vector<float>> sums;
      std::vector<const float*> sources;
      for (const Node part : parts) sums.push_back(node_sum(leaves, part));
      for (const auto& sum : sums) sources.push_back(sum.data());
      const TreeSum tree({root_level, 0}, parts);
      std::vector<float> out(static_cast<size_t>(count));
      tree.run(sources, out.data(), count);
      CHECK(same_bits(out, expected));
      // In place of any source.
      auto& place = sums[random() % sums.size()];
      tree.run(sources, place.data(), count);
      CHECK(same_bits(place, expected));
    }
  }
}

}  // namespace
}  // namespace dtrain::engine
