#include "engine/server/step_tree.h"

#include <bit>

#include "engine/comm/sum.h"
#include "engine/norm.h"
#include "schema/result.h"

namespace dtrain::engine {
StepTree::StepTree(int leaves) : leaves_(leaves) {
  INVARIANT(leaves > 0 && std::has_single_bit(static_cast<unsigned>(leaves)),
            "a balanced tree has a power of two of leaves");
  nodes_.resize(2 * static_cast<size_t>(leaves));
  scratch_.resize(static_cast<size_t>(leaves));
}

bool StepTree::has_node(int begin, int end) const {
  const int size = end - begin;
  return begin >= 0 && end <= leaves_ && size > 0 &&
         std::has_single_bit(static_cast<unsigned>(size)) && begin % size == 0;
}

size_t StepTree::index(int begin, int end) const {
  return static_cast<size_t>(leaves_ / (end - begin) + begin / (end - begin));
}

void StepTree::set(int begin, int end, const float* values) {
  nodes_[index(begin, end)] = values;
}

void StepTree::clear() {
  nodes_.assign(nodes_.size(), nullptr);
}

const float* StepTree::sum(int64_t first, int64_t count) {
  return sum_below(1, first, count);
}

const float* StepTree::sum_below(size_t at, int64_t first, int64_t count) {
  if (nodes_[at] != nullptr) return nodes_[at] + first;
  if (at >= scratch_.size()) return nullptr;
  const float* left = sum_below(2 * at, first, count);
  const float* right = sum_below(2 * at + 1, first, count);
  if (left == nullptr || right == nullptr) return left != nullptr ? left : right;
  std::vector<float>& sum = scratch_[at];
  sum.resize(kBlock);
  add(sum.data(), left, right, count);
  return sum.data();
}

}  // namespace dtrain::engine
