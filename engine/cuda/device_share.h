// The Share of a participant on a GPU: its part of the batch, in pieces that fit. Gradients stay in the
// Rank's arena and what came of it in its totals, for the Updater to sum.
//
// What a step enqueues is the same every time: a part of the batch that is one piece is captured as a graph,
// which starts with one call.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "engine/cuda/device_model.h"
#include "engine/cuda/rank.h"
#include "engine/training/share.h"

namespace dtrain::engine::cuda {

template <class T>
class DeviceShare : public Share {
 public:
  // ResourceExhausted when the device has not enough memory. All outlive it.
  static Result<std::unique_ptr<Share>> make(const RunPlan& plan, Updater& updater, int me, Rank& rank);
  ~DeviceShare() override;

  // The outcome is nothing: it is on the device.
  Result<Outcome> train(std::span<const uint32_t> batch, int64_t step) override;
  Result<Outcome> evaluate(Range range, int64_t step) override;

 private:
  DeviceShare(const RunPlan& plan, Updater& updater, int me, Rank& rank);

  struct Graph {
    enum { New, Ran, Captured, Refused } state = New;
    cudaGraphExec_t executable = nullptr;
  };

  void read(const Dataset& data, std::span<const uint32_t> ids);
  Samples<T> samples(int64_t first);
  void train_piece(int64_t first, int64_t count, bool add);
  void train_all(int64_t count);
  bool capture(int64_t count, Graph& graph);

  const RunPlan& plan_;
  Rank& rank_;
  const Range leaves_of_mine_;
  const int64_t leaves_;
  const int64_t rows_per_sample_;
  int64_t share_ = 0;     // samples of a batch that are here at most
  int64_t capacity_ = 0;  // that the model takes at once
  std::unique_ptr<DeviceModel<T>> model_;
  PinnedMemory<float> read_pixels_;
  PinnedMemory<int32_t> read_ids_, read_labels_;
  DeviceMemory<float> float_pixels_;  // where T is another type
  DeviceMemory<T> pixels_;
  DeviceMemory<int32_t> ids_, labels_;
  std::map<int64_t, Graph> graphs_;  // by samples
};

}  // namespace dtrain::engine::cuda
