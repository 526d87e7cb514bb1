// What one participant has on its GPU: arenas with the layout of the model, and what it talks to the
// others by. Owner and thread: the participant.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/cuda/communicator.h"
#include "engine/cuda/context.h"
#include "engine/optimizer.h"
#include "engine/strategies/updater.h"
#include "engine/training/run_plan.h"

namespace dtrain::engine::cuda {

class Rank {
 public:
  // `plan` outlives it. On the device `ordinal` of those that are visible.
  static Result<std::unique_ptr<Rank>> open(const RunPlan& plan, int ordinal);

  Context& context() { return *context_; }
  Device& device() { return context_->device(); }
  cudaStream_t stream() const { return context_->stream(); }
  // None where this is the only participant.
  Communicator* communicator() { return communicator_.get(); }
  void connect(std::unique_ptr<Communicator> communicator) { communicator_ = std::move(communicator); }

  float* params() { return params_.data(); }
  // What models compute with: the parameters, or of bf16 a rounded copy.
  template <class T>
  const T* weights();
  float* gradients() { return gradients_.data(); }
  float* state(int index) { return states_[static_cast<size_t>(index)].data(); }

  // Parameters are new: what is made of them is made again.
  void refresh();

  // Gradients and the context's totals are of the whole batch: parameters, or nothing if a number among
  // them is none. Enqueued; what came of it is told by finish_step().
  void update(const Update& update);
  // Waits for it. InvalidArgument: a loss or gradient that is no number. `look`: as Device::wait().
  Result<Outcome> finish_step(int64_t step, const std::function<Status()>& look);
  // The totals so far, as finish_step(); for an evaluation.
  Result<Outcome> totals(const std::function<Status()>& look);

 private:
  Rank(const RunPlan& plan, std::unique_ptr<Context> context);

  const RunPlan& plan_;
  const OptimizerKernel optimizer_;
  std::unique_ptr<Context> context_;
  DeviceMemory<float> params_, gradients_;
  std::vector<DeviceMemory<float>> states_;
  DeviceMemory<Bfloat16> copy_;  // empty unless bf16
  DeviceMemory<double> squares_;
  DeviceMemory<StepScale> scale_;
  PinnedMemory<Totals> told_;
  PinnedMemory<StepScale> told_scale_;
  std::unique_ptr<Communicator> communicator_;
};

}  // namespace dtrain::engine::cuda
