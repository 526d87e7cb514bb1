// The Share of a stage of a pipeline: one forward, one backward (Narayanan et al., arXiv 1806.03377;
// flushed after every batch, so that all stages always have the parameters of the same step).
//
// A batch goes through in micro-batches. A stage lets as many of them in as stages follow, and from then
// on takes one back for each that it sends on; so it keeps the activations of at most one more than stages
// that follow, each in a model of its own. A micro-batch is a node of the tree over the leaves, and the
// nodes are added as the tree asks.
#pragma once

#include <memory>
#include <vector>

#include "engine/training/batch_samples.h"
#include "engine/training/share.h"

namespace dtrain::engine {

class StageShare : public Share {
 public:
  StageShare(const RunPlan& plan, Updater& updater, int me);

  Range reads(int64_t batch) const override;
  Result<Outcome> train(const Batch& batch, int64_t step) override;
  Result<Outcome> evaluate(Range range, int64_t step) override;

 private:
  struct MicroBatch {
    Node node;
    size_t target;   // the participant's node that it is part of
    uint64_t index;  // within that
    // Of this batch.
    int64_t first = 0;                // of the samples that are here
    std::vector<int64_t> ends = {};  // of its leaves, in samples
    int64_t shortest = 0;             // of all leaves
    bool is_empty() const { return ends.back() == 0; }
    Leaves leaves() const { return {ends.data(), static_cast<int>(ends.size()), shortest}; }
  };

  bool sees_samples() const { return seat_.part.is_first() || seat_.part.is_last(); }
  Samples<float> samples(const MicroBatch& micro) const {
    return sees_samples() ? samples_.from(micro.first) : Samples<float>{};
  }
  // What micro-batches on their way go through: none meets another in its model.
  Model<float>& model(size_t micro) { return *models_[micro % models_.size()]; }

  Status cut(const Batch& batch);
  Status receive(size_t micro);
  void forward(size_t micro, Outcome& outcome);
  Status send(size_t micro);
  Status backward(size_t micro);
  Status give_back(size_t micro);

  std::vector<Range> held() const;
  // Arena of `target` where `waiting` sums of it wait already.
  float* arena(size_t target, int waiting);
  void add_to_tree(size_t micro);

  const RunPlan& plan_;
  Updater& updater_;
  const int me_;
  const Seat seat_;
  const std::vector<Node> nodes_;
  const int64_t leaves_;
  const std::vector<Range> held_;
  const float* params_;
  std::vector<MicroBatch> micros_;
  std::vector<std::unique_ptr<Model<float>>> models_;
  std::vector<std::unique_ptr<float[]>> waiting_;  // sums; what is not held is never touched

  int64_t capacity_ = 0;  // samples of a micro-batch
  BatchSamples samples_;
};

}  // namespace dtrain::engine
