// The samples of a batch that one participant computes on, in memory.
#pragma once

#include <span>
#include <vector>

#include "engine/buffer.h"
#include "engine/data/dataset.h"
#include "engine/models/model.h"

namespace dtrain::engine {

class BatchSamples {
 public:
  // `crew`: those who read them together.
  explicit BatchSamples(const SampleShape& shape, Crew* crew = nullptr) : shape_(shape), crew_(crew) {}

  // An error if the data was seen to be changed: Dataset::tokens().
  Status read(const Dataset& data, std::span<const uint32_t> ids);
  // From the n-th on.
  Samples<float> from(int64_t first) const;

 private:
  const SampleShape& shape_;
  Crew* const crew_;
  Buffer<float> pixels_;
  Common<float> common_;
  std::vector<int32_t> ids_, labels_;
};

}  // namespace dtrain::engine
