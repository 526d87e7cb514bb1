// Share computes one participant's part of a batch: reads its samples, and leaves the sums of their
// gradients by node. Owner and thread: a participant.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "engine/buffer.h"
#include "engine/leaves.h"
#include "engine/models/model.h"
#include "engine/training/run_plan.h"

namespace dtrain::engine {

class Share {
 public:
  // `most_leaves` that it ever gets at once.
  Share(const RunPlan& plan, int64_t leaves, int64_t most_leaves);

  // The samples of a step that belong to these nodes. `batch`: all of that step.
  void load(std::span<const uint32_t> batch, const std::vector<Node>& nodes);
  // Gradients of the n-th of them, overwritten.
  Outcome train(const float* params, size_t node, float* gradients);

  // Samples [range) of the test set.
  Outcome evaluate(const float* params, Range range);

 private:
  void read(const Dataset& data, std::span<const uint32_t> ids);
  Samples<float> samples_from(int64_t first) const;
  Outcome train(const float* params, const Node& node, float* gradients);
  Outcome train_leaf(const float* params, Range samples, float* gradients);

  const RunPlan& plan_;
  const int64_t leaves_;
  int64_t capacity_;  // samples that the model takes at once
  std::unique_ptr<Model<float>> model_;

  int64_t batch_ = 0, first_ = 0;  // samples of the batch, and the first of them that is here
  std::vector<Node> nodes_;
  std::vector<float> pixels_;
  std::vector<int32_t> ids_, labels_;
  std::map<int, Buffer<float>> waiting_;  // by level, where a node does not fit at once
};

}  // namespace dtrain::engine
