// The Share of a participant on a GPU that has all layers of the model, or slices of all: its part of the
// batch, in pieces that fit. Gradients stay in the Rank's arena and what came of it in its totals, for the
// Updater to sum.
//
// What a step enqueues is the same every time: a part of the batch that is one piece is captured as a graph,
// which starts with one call. Not where GPUs meet in between: slices, and copies that sum the last layers'
// gradients while the first layers' are computed.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/cuda/device_model.h"
#include "engine/cuda/device_partners.h"
#include "engine/cuda/device_samples.h"
#include "engine/cuda/waited_rank.h"
#include "engine/training/share.h"

namespace dtrain::engine::cuda {

template <class T>
class DeviceShare : public Share {
 public:
  // ResourceExhausted when the device has not enough memory. All outlive it.
  static Result<std::unique_ptr<Share>> make(const RunPlan& plan, Updater& updater, int me, const WaitedRank& rank);
  ~DeviceShare() override;

  // The outcome is nothing: it is on the device.
  Range reads(int64_t batch) const override;
  Result<Outcome> train(const Batch& batch, int64_t step) override;
  Result<Outcome> evaluate(Range range, int64_t step) override;

 private:
  DeviceShare(const RunPlan& plan, Updater& updater, int me, const WaitedRank& rank);

  struct Graph {
    enum { New, Ran, Captured, Refused } state = New;
    cudaGraphExec_t executable = nullptr;
  };

  void rehearse(int64_t evaluated);
  bool meets_others() const;
  // `before`: the step that is waited for before backward, see there.
  Status train_piece(int64_t first, int64_t count, bool is_last, std::optional<int64_t> before);
  Status train_all(int64_t count, std::optional<int64_t> before);
  bool capture(int64_t count, Graph& graph);

  const RunPlan& plan_;
  Rank& rank_;
  const Watch watch_;
  const Range leaves_of_mine_;
  const int64_t leaves_;
  const int64_t share_;     // samples of a batch that are here at most
  const int64_t capacity_;  // that the model takes at once
  DevicePartners<T> partners_;
  std::unique_ptr<DeviceModel<T>> model_;
  DeviceSamples<T> samples_;
  std::map<int64_t, Graph> graphs_;  // by samples
};

}  // namespace dtrain::engine::cuda
