// Samples of a batch on a GPU, read through memory that it copies from by itself. Owner and thread: a
// participant.
#pragma once

#include <span>

#include "engine/cuda/kernels.h"
#include "engine/cuda/memory.h"
#include "engine/cuda/rank.h"
#include "engine/models/model.h"

namespace dtrain::engine::cuda {

template <class T>
class DeviceSamples {
 public:
  // At most `most` at once. std::bad_alloc: there is not enough memory.
  DeviceSamples(Rank& rank, const SampleShape& shape, int64_t most)
      : rank_(rank),
        shape_(shape),
        rows_per_sample_(std::max<int64_t>(1, shape.context)),
        read_pixels_(most * shape.pixels()),
        read_ids_(most * shape.context),
        read_labels_(most * rows_per_sample_),
        float_pixels_(std::is_same_v<T, float> ? 0 : most * shape.pixels()),
        pixels_(most * shape.pixels()),
        ids_(most * shape.context),
        labels_(most * rows_per_sample_) {}

  // Enqueued. Nothing of what was read before may be on its way any more: its step's end was waited for.
  void read(const Dataset& data, std::span<const uint32_t> ids) {
    Device& device = rank_.device();
    const auto count = static_cast<int64_t>(ids.size());
    if (data.kind() == Dataset::Kind::Images) {
      data.images(ids, read_pixels_.data(), read_labels_.data());
      const int64_t pixels = count * data.pixels();
      if constexpr (std::is_same_v<T, float>) {
        device.copy_to_device(read_pixels_.data(), pixels, pixels_.data());
      } else {
        device.copy_to_device(read_pixels_.data(), pixels, float_pixels_.data());
        convert(rank_.stream(), pixels, float_pixels_.data(), pixels_.data());
      }
    } else {
      data.tokens(ids, read_ids_.data(), read_labels_.data());
      device.copy_to_device(read_ids_.data(), count * data.context(), ids_.data());
    }
    device.copy_to_device(read_labels_.data(), count * rows_per_sample_, labels_.data());
  }

  Samples<T> from(int64_t first) {
    return {pixels_.data() + first * shape_.pixels(), ids_.data() + first * shape_.context,
            labels_.data() + first * rows_per_sample_};
  }

 private:
  Rank& rank_;
  const SampleShape shape_;
  const int64_t rows_per_sample_;
  PinnedMemory<float> read_pixels_;
  PinnedMemory<int32_t> read_ids_, read_labels_;
  DeviceMemory<float> float_pixels_;  // where T is another type
  DeviceMemory<T> pixels_;
  DeviceMemory<int32_t> ids_, labels_;
};

}  // namespace dtrain::engine::cuda
