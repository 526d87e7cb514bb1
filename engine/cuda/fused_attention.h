// Causal attention by a library: cudnn_attention.cc. attention.cu does what the library does not take, and all
// where there is none. Shapes as there. Owner and thread: one participant.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <memory>

#include "engine/cuda/device.h"
#include "engine/cuda/gemm.h"
#include "engine/cuda/kernels.h"
#include "schema/result.h"

namespace dtrain::engine::cuda {

// So many samples go at once: cuDNN takes no 2^16, and what its kernels count elements in is not known to be more than
// 32 bits. Of several a multiple of 4, so that where the next ones' sums begin is one of 16 bytes.
inline int64_t samples_at_once(const AttentionShape& shape) {
  const int64_t most = std::clamp<int64_t>(kMostReach / (shape.context * 3 * shape.width), 1, 65'532);
  return most < 4 ? most : most / 4 * 4;
}

class FusedAttention {
 public:
  // FailedPrecondition: there is none, and why. `device` outlives it.
  static Result<std::unique_ptr<FusedAttention>> open(Device& device);
  virtual ~FusedAttention() = default;

  // Whether it takes these, no more than samples_at_once(), or why not. The first time a plan is made: that must not be
  // while a stream is captured.
  virtual const Status& takes(const AttentionShape& shape, int64_t samples) = 0;
  // The rest is for what it takes. Bytes that either of the two works in.
  virtual int64_t workspace(const AttentionShape& shape, int64_t samples) = 0;
  virtual void forward(cudaStream_t stream, const AttentionShape& shape, int64_t samples, const Bfloat16* qkv,
                       Bfloat16* out, float* log_sums, void* work) = 0;
  virtual void backward(cudaStream_t stream, const AttentionShape& shape, int64_t samples, const Bfloat16* qkv,
                        const Bfloat16* out, const float* log_sums, const Bfloat16* dout, Bfloat16* dqkv,
                        void* work) = 0;

  // The first error of all that was asked.
  virtual const Status& status() const = 0;
};

}  // namespace dtrain::engine::cuda
