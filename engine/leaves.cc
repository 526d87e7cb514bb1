#include "engine/leaves.h"

#include <algorithm>
#include <bit>

#include "schema/result.h"

namespace dtrain::engine {

int64_t leaf_count(int64_t participants) {
  INVARIANT(participants > 0, "somebody trains");
  return std::max<int64_t>(
      8, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(participants))));
}

Range leaf_samples(int64_t batch, int64_t leaf, int64_t leaves) {
  return {leaf * batch / leaves, (leaf + 1) * batch / leaves};
}

Range samples_of(int64_t batch, Range owned, int64_t leaves) {
  return {owned.begin * batch / leaves, owned.end * batch / leaves};
}

Range owned_leaves(int64_t participant, int64_t participants, int64_t leaves) {
  INVARIANT(0 <= participant && participant < participants && participants <= leaves,
            "each participant has a leaf");
  return {participant * leaves / participants, (participant + 1) * leaves / participants};
}

std::vector<Node> largest_nodes(Range leaves) {
  std::vector<Node> nodes;
  for (int64_t at = leaves.begin; at < leaves.end;) {
    int level = 0;
    while (at % (int64_t{2} << level) == 0 && at + (int64_t{2} << level) <= leaves.end) ++level;
    nodes.push_back({level, at >> level});
    at += int64_t{1} << level;
  }
  return nodes;
}

int most_nodes(int64_t participants, int64_t leaves) {
  size_t most = 0;
  for (int64_t p = 0; p < participants; ++p) {
    most = std::max(most, largest_nodes(owned_leaves(p, participants, leaves)).size());
  }
  return static_cast<int>(most);
}

}  // namespace dtrain::engine
