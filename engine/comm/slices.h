// How an arena is cut for an exchange: into buckets, which go one after the other, the last elements first, for
// backward is through with these first; and each bucket into slices, one for each participant, who owns it. All cuts
// are at blocks of kBlock. Pure.
#pragma once

#include "engine/layout.h"
#include "engine/norm.h"

namespace dtrain::engine {

class Slices {
 public:
  // Buckets as even as they come, of at least `bucket_elements`, and so many that slices of one differ little.
  // 0: one bucket.
  Slices(int64_t elements, int world, int64_t bucket_elements);

  int buckets() const { return static_cast<int>(buckets_); }
  Range bucket(int index) const { return elements_of(blocks_of_bucket(index)); }
  // What `participant` owns of a bucket. Empty if there are fewer blocks.
  Range of(int participant, int bucket) const { return of(participant, 1, bucket); }
  // What participants [first, first + count) own.
  Range of(int first, int count, int bucket) const;
  // Buckets that lie at or behind `offset`.
  int from(int64_t offset) const;

 private:
  Range blocks_of_bucket(int index) const;
  Range elements_of(Range blocks) const;

  int64_t elements_, world_, buckets_;
};

}  // namespace dtrain::engine
