#include "engine/training/batch_samples.h"

#include <algorithm>

namespace dtrain::engine {

void BatchSamples::read(const Dataset& data, std::span<const uint32_t> ids) {
  if (data.kind() == Dataset::Kind::Images) {
    pixels_.resize(ids.size() * static_cast<size_t>(data.pixels()));
    labels_.resize(ids.size());
    data.images(ids, pixels_.data(), labels_.data());
  } else {
    ids_.resize(ids.size() * static_cast<size_t>(data.context()));
    labels_.resize(ids_.size());
    data.tokens(ids, ids_.data(), labels_.data());
  }
}

Samples<float> BatchSamples::from(int64_t first) const {
  const int64_t rows = std::max<int64_t>(1, shape_.context);
  return {pixels_.data() + first * shape_.pixels(), ids_.data() + first * shape_.context,
          labels_.data() + first * rows};
}

}  // namespace dtrain::engine
