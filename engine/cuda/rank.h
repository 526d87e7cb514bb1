// What one participant has on its GPU: arenas that hold its part of the model, and what it talks to the
// others by. Owner and thread: the participant.
#pragma once

#include <array>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/cuda/communicator.h"
#include "engine/cuda/context.h"
#include "engine/cuda/gradient_sum.h"
#include "engine/models/part_layout.h"
#include "engine/optimizer.h"
#include "engine/strategies/updater.h"
#include "engine/training/run_plan.h"

namespace dtrain::engine::cuda {

// What a participant can be reached by; those that it is in, of the same order everywhere.
struct Links {
  std::shared_ptr<Communicator> world;   // all
  std::shared_ptr<Communicator> column;  // those with the same part of the model
  std::shared_ptr<Communicator> row;     // those with the other parts of the same copy
};

class Rank {
 public:
  // `plan` outlives it. On the device `ordinal` of those that are visible; `states`: arenas of the optimiser's.
  static Result<std::unique_ptr<Rank>> open(const RunPlan& plan, const ModelPart& part, int ordinal, int states);
  ~Rank();

  Context& context() { return *context_; }
  Device& device() { return context_->device(); }
  cudaStream_t stream() const { return context_->stream(); }
  const Links& links() const { return links_; }
  void connect(Links links);
  // Over those of the column; nullptr if there is none.
  GradientSum* gradient_sum() { return gradient_sum_.get(); }
  // Nobody waits for this one any more.
  void abandon();
  // The first error of any link.
  Status links_status() const;

  const ModelPart& part() const { return part_; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  const Layout& layout() const { return layout_; }  // of the arenas
  // Where in the arenas pieces of these lie.
  std::vector<Range> ranges(std::initializer_list<Piece::Whose> whose) const;
  int states() const { return static_cast<int>(states_.size()); }

  float* params() { return params_.data(); }
  // What models compute with: the parameters, or of bf16 a rounded copy.
  template <class T>
  const T* weights();
  float* gradients() { return gradients_.data(); }
  float* state(int index) { return states_[static_cast<size_t>(index)].data(); }

  // Parameters are new: what is made of them is made again.
  void refresh();
  void clear_gradients();
  void clear_totals();

  // Adds the squares of gradients to the totals, each element of the model once over all slices and stages.
  void add_squares();
  // Gradients and the context's totals are of the whole batch: parameters, or nothing if the loss is no number, or with `clip`
  // a gradient. Enqueued, and the end of the step with it; the one before may be on its way still. `updates`: that
  // parameters have seen before. `watch`, where others are waited for: it is paced, and this makes the look of each pace().
  Status update(const Update& update, int64_t updates, const std::function<std::function<Status()>()>& watch = {});
  // Waits for the end of this step, one of the last two, unless its outcome was asked for. `look`: as Device::wait(). An
  // error of a link too, by which the end may have come at once.
  Status wait_for(int64_t step, const std::function<Status()>& look);
  // The same, and what came of it; nothing if that was asked for before, or no update() was of it. InvalidArgument: a
  // loss or gradient that is no number.
  Result<Outcome> outcome_of(int64_t step, const std::function<Status()>& look);
  // After each layer that is enqueued: waits for what the device had kPaces layers before. It holds so many launches and no
  // more, a thousand or so: who adds another one waits in that call, without a look, and behind another GPU perhaps for ever.
  Status pace(const std::function<Status()>& look);
  // The totals so far, of all that was enqueued; for an evaluation.
  Result<Outcome> totals(const std::function<Status()>& look);

 private:
  Rank(const RunPlan& plan, const ModelPart& part, std::unique_ptr<Context> context, int states);

  const RunPlan& plan_;
  const ModelPart part_;
  const std::vector<Piece> pieces_;
  const Layout layout_;
  const OptimizerKernel optimizer_;
  std::unique_ptr<Context> context_;
  DeviceMemory<float> params_, gradients_;
  std::vector<DeviceMemory<float>> states_;
  DeviceMemory<Bfloat16> copy_;  // empty unless bf16
  DeviceMemory<double> squares_;
  DeviceMemory<StepScale> scale_;
  PinnedMemory<Totals> told_;  // by totals()
  // What came of a step, once the device has come to its end. By turns two of them: while the host looks at one, the
  // next step's is written.
  struct End {
    std::optional<int64_t> step;  // that nobody asked for yet
    PinnedMemory<Totals> totals{1};
    PinnedMemory<StepScale> scale{1};
    cudaEvent_t reached = nullptr;
  };
  End& end_of(int64_t step) { return ends_[static_cast<size_t>(step) % ends_.size()]; }
  std::array<End, 2> ends_;
  static constexpr size_t kPaces = 16;
  static constexpr int kRunsPaced = 16;  // of an update, about as many launches as a layer's
  std::array<cudaEvent_t, kPaces> paces_ = {};
  size_t paced_ = 0;
  Links links_;
  std::unique_ptr<GradientSum> gradient_sum_;
};

}  // namespace dtrain::engine::cuda
