#include "engine/server/shards.h"

#include <doctest/doctest.h>

#include "engine/norm.h"

namespace dtrain::engine {
namespace {

TEST_CASE("shards are contiguous, cut at blocks, and differ by one block at most") {
  for (const int64_t elements : {16L, 4096L, 4112L, 100000L, 6250000L}) {
    for (const int servers : {1, 2, 3, 7}) {
      const std::vector<Range> shards = shards_of(elements, servers);
      REQUIRE(shards.size() == static_cast<size_t>(servers));
      int64_t at = 0, least = elements, most = 0;
      for (const Range& shard : shards) {
        CHECK(shard.begin == at);
        CHECK((shard.begin % kBlock == 0 || shard.size() == 0));
        at = shard.end;
        least = std::min(least, blocks_of(shard.size()));
        most = std::max(most, blocks_of(shard.size()));
      }
      CHECK(at == elements);
      CHECK(most - least <= 1);
    }
  }
}

}  // namespace
}  // namespace dtrain::engine
