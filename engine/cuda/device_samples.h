// Samples of a batch on a GPU, read through memory that it copies from by itself. Owner and thread: a
// participant.
#pragma once

#include <algorithm>
#include <array>
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
        staged_{Staged(most, shape), Staged(most, shape)},
        float_pixels_(std::is_same_v<T, float> ? 0 : most * shape.pixels()),
        pixels_(most * shape.pixels()),
        ids_(most * shape.context),
        labels_(most * rows_per_sample_) {}

  // Enqueued. What the call before has read may be on its way still; what was read before that may not: the end of
  // its step was waited for. An error if the data was seen to be changed.
  Status read(const Dataset& data, std::span<const uint32_t> ids) {
    Device& device = rank_.device();
    const auto count = static_cast<int64_t>(ids.size());
    Staged& read = staged_[turn_++ % staged_.size()];
    if (data.kind() == Dataset::Kind::Images) {
      data.images(ids, read.pixels.data(), read.labels.data());
      const int64_t pixels = count * data.pixels();
      if constexpr (std::is_same_v<T, float>) {
        device.copy_to_device(read.pixels.data(), pixels, pixels_.data());
      } else {
        device.copy_to_device(read.pixels.data(), pixels, float_pixels_.data());
        convert(rank_.stream(), pixels, float_pixels_.data(), pixels_.data());
      }
    } else {
      TRY(data.tokens(ids, read.ids.data(), read.labels.data()));
      device.copy_to_device(read.ids.data(), count * data.context(), ids_.data());
    }
    device.copy_to_device(read.labels.data(), count * rows_per_sample_, labels_.data());
    return ok();
  }

  Samples<T> from(int64_t first) {
    return {pixels_.data() + first * shape_.pixels(), ids_.data() + first * shape_.context,
            labels_.data() + first * rows_per_sample_};
  }

 private:
  // Where the device copies from.
  struct Staged {
    Staged(int64_t most, const SampleShape& shape)
        : pixels(most * shape.pixels()),
          ids(most * shape.context),
          labels(most * std::max<int64_t>(1, shape.context)) {}
    PinnedMemory<float> pixels;
    PinnedMemory<int32_t> ids, labels;
  };

  Rank& rank_;
  const SampleShape shape_;
  const int64_t rows_per_sample_;
  std::array<Staged, 2> staged_;
  size_t turn_ = 0;
  DeviceMemory<float> float_pixels_;  // where T is another type
  DeviceMemory<T> pixels_;
  DeviceMemory<int32_t> ids_, labels_;
};

}  // namespace dtrain::engine::cuda
