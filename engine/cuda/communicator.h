// What participants tell each other from GPU to GPU: by NCCL (nccl_communicator.cc). Calls enqueue on a stream
// and return; all members make the same ones in the same order. Owner and thread: one participant.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/comm/deadline.h"
#include "engine/cuda/kernels.h"
#include "engine/layout.h"
#include "schema/result.h"

namespace dtrain::engine::cuda {

class Communicator {
 public:
  // What its members meet by: made by one of them, and told to the others.
  using Id = std::array<char, 128>;
  static Result<Id> make_id();
  // All `size` members, each with its device current. An error if they have not met within so long; and of
  // the first calls, which meet again.
  static Result<std::unique_ptr<Communicator>> open(const Id& id, int rank, int size, double deadline_seconds);
  virtual ~Communicator() = default;

  // Sums, in place.
  virtual void all_reduce(cudaStream_t stream, float* values, int64_t count) = 0;
  virtual void all_reduce(cudaStream_t stream, double* values, int64_t count) = 0;
  virtual void all_reduce(cudaStream_t stream, Bfloat16* values, int64_t count) = 0;
  // To all from `root`: what is in these ranges.
  virtual void broadcast(cudaStream_t stream, float* arena, std::span<const Range> ranges, int root) = 0;
  // To one member and from one, at once; each is in a call that fits. Nothing where there are no bytes.
  struct Parcel {
    const void* out = nullptr;
    int64_t out_bytes = 0;
    int to = 0;
    void* in = nullptr;
    int64_t in_bytes = 0;
    int from = 0;
  };
  virtual void pass(cudaStream_t stream, const Parcel& parcel) = 0;
  // all [size][count]
  virtual void gather(cudaStream_t stream, const float* mine, float* all, int64_t count) = 0;

  // The first error of all that was asked; of what is on its way too. Never waits.
  virtual Status status() = 0;
  // Gives up what is on their way: nobody waits for this member any more than for a lost one. All of a device at once:
  // what one of them works in can't be freed before what the others have there is over.
  static void abort(const std::vector<Communicator*>& all);
};

}  // namespace dtrain::engine::cuda
