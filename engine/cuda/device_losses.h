// The loss of a batch on a GPU: what HostLosses is for the CPU. What came of the batch is added to the
// context's totals.
#pragma once

#include "engine/cuda/context.h"
#include "engine/cuda/kernels.h"
#include "engine/models/model.h"

namespace dtrain::engine::cuda {

template <class V>
class DeviceLosses {
  using Sum = cuda::Sum<V>;

 public:
  DeviceLosses() = default;
  DeviceLosses(int64_t rows, Range columns, int slices)
      : columns_(columns), slices_(slices), losses_(rows), right_(rows) {
    if (slices == 1) return;
    mine_ = DeviceMemory<Sum>(rows * kSliceTold);
    all_ = DeviceMemory<Sum>(rows * kSliceTold * slices);
  }

  template <class Ops>
  Outcome run(const Ops& ops, Leaves leaves, int64_t rows_per_sample, const int32_t* labels, V* logits,
              int64_t width, Partners<V, Sum>* partners) {
    const int64_t rows = leaves.ends[leaves.count - 1] * rows_per_sample, n = columns_.size();
    const cudaStream_t stream = ops.stream();
    if (slices_ == 1) {
      softmax_cross_entropy(stream, rows, n, width, labels, logits, losses_.data(), right_.data());
    } else {
      tell_slice(stream, rows, n, width, columns_.begin, labels, logits, mine_.data());
      partners->gather(mine_.data(), all_.data(), rows * kSliceTold);
      sliced_cross_entropy(stream, rows, n, width, columns_.begin, labels, slices_, all_.data(), logits,
                           losses_.data(), right_.data());
    }
    add_totals(stream, rows, losses_.data(), right_.data(), ops.context().totals());
    return {};
  }

 private:
  Range columns_ = {};
  int slices_ = 1;
  DeviceMemory<double> losses_;
  DeviceMemory<int32_t> right_;
  DeviceMemory<Sum> mine_, all_;
};

}  // namespace dtrain::engine::cuda
