#include "engine/data/sampler.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "engine/data/shuffle.h"
#include "engine/leaves.h"

namespace dtrain::engine {
namespace {

std::vector<uint32_t> epoch_of(const Sampler& sampler, int64_t epoch) {
  std::vector<uint32_t> all;
  for (int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
    const auto batch = sampler.batch(epoch, step).samples();
    CHECK(static_cast<int64_t>(batch.size()) == sampler.batch_size(step));
    all.insert(all.end(), batch.begin(), batch.end());
  }
  return all;
}

TEST_CASE("an epoch is every sample once, the last batch what is left") {
  const Sampler sampler({.samples = 1003, .batch = 64, .seed = 5});
  CHECK(sampler.steps_per_epoch() == 16);
  CHECK(sampler.batch_size(15) == 43);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    auto all = epoch_of(sampler, epoch);
    CHECK(all.size() == 1003);
    CHECK(std::set<uint32_t>(all.begin(), all.end()).size() == 1003);
    CHECK_FALSE(std::is_sorted(all.begin(), all.end()));
  }
  CHECK(epoch_of(sampler, 0) != epoch_of(sampler, 1));
}

TEST_CASE("the order depends on seed and epoch, not on the batch") {
  const Sampler a({.samples = 500, .batch = 10, .seed = 5});
  CHECK(epoch_of(a, 2) == epoch_of(Sampler({.samples = 500, .batch = 64, .seed = 5}), 2));
  CHECK(epoch_of(a, 2) != epoch_of(Sampler({.samples = 500, .batch = 10, .seed = 6}), 2));
}

TEST_CASE("virtual epochs follow one another through the permutations") {
  const Sampler sampler({.samples = 10, .batch = 4, .seed = 1, .epoch_samples = 7});
  CHECK(sampler.steps_per_epoch() == 2);
  CHECK(sampler.batch_size(1) == 3);
  std::vector<uint32_t> all;
  for (int64_t epoch = 0; epoch < 10; ++epoch) {
    const auto part = epoch_of(sampler, epoch);
    CHECK(part.size() == 7);
    all.insert(all.end(), part.begin(), part.end());
  }
  for (int64_t n = 0; n < 7; ++n) {
    const Shuffle shuffle(10, 1, n);
    for (int64_t place = 0; place < 10; ++place) CHECK(all[10 * n + place] == shuffle.sample_at(place));
  }
}

TEST_CASE("a virtual epoch may be larger than the data set") {
  const Sampler sampler({.samples = 10, .batch = 8, .seed = 1, .epoch_samples = 25});
  const auto all = epoch_of(sampler, 0);
  CHECK(all.size() == 25);
  for (uint32_t id = 0; id < 10; ++id) CHECK(std::count(all.begin(), all.end(), id) >= 2);
}

TEST_CASE("participants together take every sample of a step once, however many there are") {
  const Sampler sampler({.samples = 101, .batch = 30, .seed = 9});
  for (int64_t world = 1; world <= 12; ++world) {
    const int64_t leaves = leaf_count(world);
    std::vector<uint32_t> all;
    for (int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
      for (int64_t p = 0; p < world; ++p) {
        const Batch batch = sampler.batch(0, step);
        const auto mine = batch.part(samples_of(batch.size(), owned_leaves(p, world, leaves), leaves)).samples();
        all.insert(all.end(), mine.begin(), mine.end());
      }
    }
    CHECK(all == epoch_of(sampler, 0));
  }
}

}  // namespace
}  // namespace dtrain::engine
