// The Share of a participant that has all layers of the model, or slices of all: its part of the batch,
// node by node, in pieces that fit.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "engine/buffer.h"
#include "engine/training/batch_samples.h"
#include "engine/training/share.h"

namespace dtrain::engine {

class BatchShare : public Share {
 public:
  BatchShare(const RunPlan& plan, Updater& updater, int me);

  Range reads(int64_t batch) const override;
  Result<Outcome> train(const Batch& batch, int64_t step) override;
  Result<Outcome> evaluate(Range range, int64_t step) override;

 private:
  // `ready`: what is told of the gradients that are computed last, if anything.
  Outcome train(const Node& node, float* gradients, const GradientsReady& ready);
  Outcome train_leaf(Range samples, float* gradients, const GradientsReady& ready);
  int64_t shortest() const;  // samples of the shortest leaf of the batch, or of a piece of one
  // Those who compute it with this one count it too: the first of them tells.
  Result<Outcome> told(const Outcome& outcome) const;

  const RunPlan& plan_;
  Updater& updater_;
  const int me_;
  const Seat seat_;
  const std::vector<Node> nodes_;
  const int64_t leaves_;
  int64_t capacity_;  // samples that the model takes at once
  std::unique_ptr<Model<float>> model_;
  const float* params_;

  int64_t batch_ = 0, first_ = 0;  // samples of the batch, and the first of them that is here
  BatchSamples samples_;
  std::map<int, Buffer<float>> waiting_;  // by level, where a node does not fit at once
};

}  // namespace dtrain::engine
