// How attention is asked of cuDNN: graphs of its one operation, in each direction.
#pragma once

#include <cudnn_frontend.h>

#include <memory>

#include "engine/cuda/kernels.h"
#include "schema/result.h"

namespace dtrain::engine::cuda {

// Loads cuDNN, once. An error: it is not here. Of any version: what it does not take, AttentionGraphs::check() says.
Status load_cudnn();

struct AttentionGraphs {
  using Graph = cudnn_frontend::graph::Graph;
  enum Tensor : int64_t { kQuery = 1, kKey, kValue, kOut, kLogSums, kOutGradient, kQueryGradient, kKeyGradient, kValueGradient };

  std::shared_ptr<Graph> forward, backward;
  int64_t workspace = 0;  // of the larger
  // Large ones have all their kernels made, to be timed; of others the first is good enough.
  bool is_large = false;

  // Not built yet, for chips of the compute capability `chip`: 90. `device` tells of one that is not here.
  static AttentionGraphs of(const AttentionShape& shape, int64_t samples, int chip,
                            const std::shared_ptr<cudnn_frontend::DeviceProperties>& device = nullptr);
  // Whether cuDNN takes them: FailedPrecondition says why not. With a handle plans are made as well.
  Status check(cudnnHandle_t handle);
};

}  // namespace dtrain::engine::cuda
