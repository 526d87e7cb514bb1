// Sums of arenas by the tree over the leaves of a batch (leaves.h): node(k, i) = node(k-1, 2i) +
// node(k-1, 2i+1) in fp32, in exactly that association.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/leaves.h"

namespace dtrain::engine {

// How one node is summed from others that tile it. Pure once built; any thread.
class TreeSum {
 public:
  // `parts`, from the left, tile `target`.
  TreeSum(Node target, std::vector<Node> parts);

  // out[i] = the sum over the parts of sources[part][i]. `out` may be one of the sources.
  void run(std::span<const float* const> sources, float* out, int64_t count) const;

 private:
  // Operands at or above 0 are parts, below it the results of earlier steps.
  struct Step {
    int a = 0, b = 0, c = 0, d = 0;
    bool four = false;  // (a + b) + (c + d), else a + b
  };
  // Adds the steps for the node; its operand.
  int build(Node node, size_t& next_part);

  std::vector<Node> parts_;
  std::vector<Step> steps_;  // the last gives the result; none if there is only one part
};

}  // namespace dtrain::engine
