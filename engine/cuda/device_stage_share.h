// The Share of a stage of a pipeline on a GPU: one forward, one backward, as StageShare has it on the CPU.
// What goes on and what comes back pass at once, so that neighbours that both send don't wait for each other.
#pragma once

#include <memory>
#include <vector>

#include "engine/cuda/device_model.h"
#include "engine/cuda/device_samples.h"
#include "engine/cuda/waited_rank.h"

namespace dtrain::engine::cuda {

template <class T>
class DeviceStageShare : public Share {
 public:
  // As DeviceShare::make().
  static Result<std::unique_ptr<Share>> make(const RunPlan& plan, const WaitedRank& rank);

  Range reads(int64_t batch) const override;
  Result<Outcome> train(const Batch& batch, int64_t step) override;
  Result<Outcome> evaluate(Range range, int64_t step) override;

 private:
  DeviceStageShare(const RunPlan& plan, const WaitedRank& rank);

  void rehearse();
  // What micro-batches on their way go through: none meets another in its model.
  DeviceModel<T>& model(size_t micro) { return *models_[micro % models_.size()]; }
  bool sees_samples() const { return part_.is_first() || part_.is_last(); }
  Samples<T> samples(size_t micro) { return sees_samples() ? samples_.from(micros_[micro].begin) : Samples<T>{}; }

  // With the stage before: gives back the gradient of one micro-batch's input, and takes another one's input.
  // With the one after: the other way round. -1: none.
  void pass_before(int64_t given, int64_t taken);
  void pass_after(int64_t given, int64_t taken);
  Status forward(size_t micro, int64_t step, const char* doing);
  Status backward(size_t micro, int64_t step);

  const RunPlan& plan_;
  Rank& rank_;
  const Watch watch_;
  const ModelPart part_;
  const int64_t capacity_;  // samples of a micro-batch
  std::vector<std::unique_ptr<DeviceModel<T>>> models_;
  DeviceSamples<T> samples_;
  std::vector<Range> micros_;  // of this batch, in samples; none is empty
};

}  // namespace dtrain::engine::cuda
