#include "engine/comm/slices.h"

#include <algorithm>

namespace dtrain::engine {

namespace {

// Of each participant in a bucket, where there are several: one block more or less is little then.
constexpr int64_t kBlocksEach = 4;

}  // namespace

Slices::Slices(int64_t elements, int world, int64_t bucket_elements)
    : elements_(elements), world_(world), buckets_(1) {
  if (bucket_elements == 0) return;
  buckets_ = std::max<int64_t>(1, elements / std::max(bucket_elements, world_ * kBlocksEach * kBlock));
}

Range Slices::of(int first, int count, int bucket) const {
  const Range blocks = blocks_of_bucket(bucket);
  const auto at = [&](int64_t participant) { return blocks.begin + participant * blocks.size() / world_; };
  return elements_of({at(first), at(first + count)});
}

int Slices::from(int64_t offset) const {
  int count = 0;
  while (count < buckets() && bucket(count).begin >= offset) ++count;
  return count;
}

Range Slices::blocks_of_bucket(int index) const {
  const int64_t blocks = blocks_of(elements_), before = buckets_ - 1 - index;
  return {before * blocks / buckets_, (before + 1) * blocks / buckets_};
}

Range Slices::elements_of(Range blocks) const {
  return {std::min(elements_, blocks.begin * kBlock), std::min(elements_, blocks.end * kBlock)};
}

}  // namespace dtrain::engine
