#include "engine/server/shards.h"

#include <algorithm>

#include "engine/norm.h"

namespace dtrain::engine {

std::vector<Range> shards_of(int64_t elements, int servers) {
  const int64_t blocks = blocks_of(elements);
  std::vector<Range> shards;
  for (int64_t server = 0; server < servers; ++server) {
    const int64_t begin = blocks * server / servers;
    const int64_t end = blocks * (server + 1) / servers;
    shards.push_back({std::min(elements, begin * kBlock), std::min(elements, end * kBlock)});
  }
  return shards;
}

}  // namespace dtrain::engine
