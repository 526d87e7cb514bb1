// Leaves: the batch of a step is cut into V of them whatever the number of participants, and sums
// over the batch follow one balanced binary tree over the leaves, so that they have the same bits
// for every number of participants. Ranges are of leaves here, or of positions within the batch.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/layout.h"

namespace dtrain::engine {

// The inner node that sums the leaves [index << level, (index + 1) << level).
struct Node {
  int level = 0;
  int64_t index = 0;
  Range leaves() const { return {index << level, (index + 1) << level}; }
  bool operator==(const Node&) const = default;
};

// V: 8, or the next power of two when there are more participants.
int64_t leaf_count(int64_t participants);

// The part of a batch that a leaf is; sizes differ by at most one, and may be none.
Range leaf_samples(int64_t batch, int64_t leaf, int64_t leaves);
// The same for leaves in a row.
Range samples_of(int64_t batch, Range owned, int64_t leaves);

// What participant p of n owns: each leaf has one owner, and each of n <= V has a leaf.
Range owned_leaves(int64_t participant, int64_t participants, int64_t leaves);

// The largest nodes that make up [begin, end), from left to right: at most 2 log2(V), one where the
// participants are a power of two.
std::vector<Node> largest_nodes(Range leaves);

// The most nodes that any of n participants delivers, each in an arena of gradients.
int most_nodes(int64_t participants, int64_t leaves);

}  // namespace dtrain::engine
