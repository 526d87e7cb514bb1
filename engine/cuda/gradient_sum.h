// The sum of gradients over all copies of a part of the model, in buckets: the sum of each starts as soon as
// backward is through with it, on a stream of its own, while the rest of backward computes. Owner and thread:
// one participant.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "engine/cuda/communicator.h"
#include "engine/cuda/device.h"
#include "engine/layout.h"

namespace dtrain::engine::cuda {

// Where none is asked for: PyTorch's, by which NCCL has all the bandwidth there is.
inline constexpr double kBucketMb = 25;

// Ranges of an arena that are summed one after the other, the last parameters first: whole parameters, at least
// so many bytes together, but for the first ones. All copies cut alike.
std::vector<Range> buckets_of(const Layout& layout, int64_t bytes);

class GradientSum {
 public:
  // Of `gradients`, over the members of `copies`. All outlive it.
  GradientSum(Device& device, Communicator& copies, const Layout& layout, float* gradients, double bucket_mb);
  ~GradientSum();
  GradientSum(const GradientSum&) = delete;
  GradientSum& operator=(const GradientSum&) = delete;

  // Whether anything can be summed before all gradients are there.
  bool overlaps() const { return buckets_.size() > 1; }
  // Gradients from this offset on are final in what the device's stream has so far.
  void ready(int64_t offset);
  // All are; what the device's stream gets from now on has their sums.
  void finish();

 private:
  Device& device_;
  Communicator& copies_;
  float* const gradients_;
  const std::vector<Range> buckets_;
  size_t started_ = 0;  // of this step
  cudaStream_t stream_ = nullptr;
  cudaEvent_t computed_ = nullptr, summed_ = nullptr;
};

}  // namespace dtrain::engine::cuda
