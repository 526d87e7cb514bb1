// The sum over a step's leaves, by the one tree that every strategy uses: a node is the sum of its two
// halves, in fp32. So the bits don't depend on who delivers which leaves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dtrain::engine {

// The nodes of one step, each the sums over leaves [begin, end) of an arena or a part of it.
// Leaves that nobody delivers count as absent, not as zeros.
class StepTree {
 public:
  // A power of two.
  explicit StepTree(int leaves);

  // Whether there is such a node.
  bool has_node(int begin, int end) const;
  void set(int begin, int end, const float* values);
  void clear();

  // Elements [first, first + count), count at most that of a block: null if no node is set, else
  // valid until the next call. Either a node's own elements or the sum in a buffer of its own.
  const float* sum(int64_t first, int64_t count);

 private:
  size_t index(int begin, int end) const;
  const float* sum_below(size_t index, int64_t first, int64_t count);

  int leaves_;
  std::vector<const float*> nodes_;          // as a heap: the root is 1
  std::vector<std::vector<float>> scratch_;  // one a node that has halves
};

}  // namespace dtrain::engine
