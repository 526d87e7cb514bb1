#include "engine/training/batch_samples.h"

#include <algorithm>

namespace dtrain::engine {

Status BatchSamples::read(const Dataset& data, std::span<const uint32_t> ids) {
  if (data.kind() == Dataset::Kind::Images) {
    const int64_t pixels = static_cast<int64_t>(ids.size()) * data.pixels();
    if (pixels_.size() < pixels) pixels_ = Buffer<float>(pixels);
    labels_.resize(ids.size());
    common_ = data.common();
    Crew::share(crew_, static_cast<int64_t>(ids.size()), 1, 1, [&](Range range) {
      data.images(ids.subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.size())),
                  pixels_.data() + range.begin * data.pixels(), labels_.data() + range.begin);
    });
  } else {
    ids_.resize(ids.size() * static_cast<size_t>(data.context()));
    labels_.resize(ids_.size());
    TRY(data.tokens(ids, ids_.data(), labels_.data()));
  }
  return ok();
}

Samples<float> BatchSamples::from(int64_t first) const {
  const int64_t rows = std::max<int64_t>(1, shape_.context);
  return {pixels_.data() + first * shape_.pixels(), ids_.data() + first * shape_.context, labels_.data() + first * rows, common_};
}

}  // namespace dtrain::engine
