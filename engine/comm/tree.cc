#include "engine/comm/tree.h"

#include <algorithm>
#include <cstring>

#include "engine/comm/sum.h"
#include "schema/result.h"

namespace dtrain::engine {
namespace {

// What the steps between hold of a slice at once: stays in the first-level cache.
constexpr int64_t kPart = 1024;  // elements

}  // namespace

TreeSum::TreeSum(Node target, std::vector<Node> parts) : parts_(std::move(parts)) {
  size_t next_part = 0;
  build(target, next_part);
  INVARIANT(next_part == parts_.size(), "the parts tile the target");
}

int TreeSum::build(Node node, size_t& next_part) {
  INVARIANT(next_part < parts_.size() && node.level >= 0, "the parts tile the target");
  if (parts_[next_part] == node) return static_cast<int>(next_part++);
  Step step;
  const Node left{node.level - 1, 2 * node.index}, right{node.level - 1, 2 * node.index + 1};
  INVARIANT(node.level > 0, "the parts tile the target");
  // Where both halves are sums themselves, four operands save a trip to memory and back.
  if (parts_[next_part] != left) {
    const Node ll{node.level - 2, 2 * left.index}, lr{node.level - 2, 2 * left.index + 1};
    step.a = build(ll, next_part);
    step.b = build(lr, next_part);
    if (next_part < parts_.size() && parts_[next_part] != right) {
      const Node rl{node.level - 2, 2 * right.index}, rr{node.level - 2, 2 * right.index + 1};
      step.c = build(rl, next_part);
      step.d = build(rr, next_part);
      step.four = true;
    } else {
      steps_.push_back(step);
      step = Step{};
      step.a = -static_cast<int>(steps_.size());
      step.b = build(right, next_part);
    }
  } else {
    step.a = build(left, next_part);
    step.b = build(right, next_part);
  }
  steps_.push_back(step);
  return -static_cast<int>(steps_.size());
}

void TreeSum::run(std::span<const float* const> sources, float* out, int64_t count) const {
  if (steps_.empty()) {
    if (out != sources[0]) std::memcpy(out, sources[0], static_cast<size_t>(count) * sizeof(float));
    return;
  }
  if (steps_.size() == 1) {
    const Step& only = steps_[0];
    const auto source = [&](int operand) { return sources[static_cast<size_t>(operand)]; };
    if (only.four) {
      add(out, source(only.a), source(only.b), source(only.c), source(only.d), count);
    } else {
      add(out, source(only.a), source(only.b), count);
    }
    return;
  }
  thread_local std::vector<float> between;
  between.resize((steps_.size() - 1) * kPart);
  for (int64_t at = 0; at < count; at += kPart) {
    const int64_t size = std::min(kPart, count - at);
    const auto result = [&](size_t step) {
      // `out` is written last: it may be a source of any step.
      return step + 1 == steps_.size() ? out + at : between.data() + step * kPart;
    };
    const auto operand = [&](int index) -> const float* {
      return index >= 0 ? sources[static_cast<size_t>(index)] + at
                        : result(static_cast<size_t>(-index - 1));
    };
    for (size_t i = 0; i < steps_.size(); ++i) {
      const Step& step = steps_[i];
      if (step.four) {
        add(result(i), operand(step.a), operand(step.b), operand(step.c), operand(step.d), size);
      } else {
        add(result(i), operand(step.a), operand(step.b), size);
      }
    }
  }
}

}  // namespace dtrain::engine
