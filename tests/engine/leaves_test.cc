#include "engine/leaves.h"

#include <doctest/doctest.h>

#include <cstdlib>

namespace dtrain::engine {
namespace {

TEST_CASE("there are 8 leaves, or as many as more participants need") {
  CHECK(leaf_count(1) == 8);
  CHECK(leaf_count(8) == 8);
  CHECK(leaf_count(9) == 16);
  CHECK(leaf_count(33) == 64);
}

TEST_CASE("leaves cut every batch without gap, in sizes that differ by at most one") {
  for (const int64_t batch : {0, 1, 5, 8, 64, 127, 1000}) {
    int64_t next = 0;
    for (int64_t leaf = 0; leaf < 8; ++leaf) {
      const Range samples = leaf_samples(batch, leaf, 8);
      CHECK(samples.begin == next);
      CHECK(std::abs(samples.size() - batch / 8) <= 1);
      next = samples.end;
    }
    CHECK(next == batch);
  }
}

TEST_CASE("participants own all leaves, and the samples of theirs in a row") {
  for (int64_t participants = 1; participants <= 40; ++participants) {
    const int64_t leaves = leaf_count(participants);
    int64_t next = 0;
    for (int64_t p = 0; p < participants; ++p) {
      const Range owned = owned_leaves(p, participants, leaves);
      CHECK(owned.begin == next);
      CHECK(owned.size() >= 1);
      CHECK(samples_of(100, owned, leaves) == Range{leaf_samples(100, owned.begin, leaves).begin,
                                                    leaf_samples(100, owned.end - 1, leaves).end});
      next = owned.end;
    }
    CHECK(next == leaves);
  }
}

TEST_CASE("the largest nodes of leaves in a row") {
  CHECK(largest_nodes({0, 8}) == std::vector<Node>{{3, 0}});
  CHECK(largest_nodes({4, 8}) == std::vector<Node>{{2, 1}});
  CHECK(largest_nodes({0, 2}) == std::vector<Node>{{1, 0}});
  CHECK(largest_nodes({2, 5}) == std::vector<Node>{{1, 1}, {0, 4}});
  CHECK(largest_nodes({1, 8}) == std::vector<Node>{{0, 1}, {1, 1}, {2, 1}});
  CHECK(largest_nodes({3, 3}).empty());
}

TEST_CASE("nodes cover exactly the leaves, and no two of them have a parent within") {
  for (int64_t begin = 0; begin < 64; ++begin) {
    for (int64_t end = begin + 1; end <= 64; ++end) {
      int64_t next = begin;
      for (const Node& node : largest_nodes({begin, end})) {
        CHECK(node.leaves().begin == next);
        next = node.leaves().end;
        const Node parent{node.level + 1, node.index / 2};
        CHECK((parent.leaves().begin < begin || parent.leaves().end > end));
      }
      CHECK(next == end);
    }
  }
}

}  // namespace
}  // namespace dtrain::engine
