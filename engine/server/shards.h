// Which elements each parameter server holds.
#pragma once

#include <vector>

#include "engine/layout.h"

namespace dtrain::engine {

// One range a server, in order, together the whole arena. Cut at blocks of the norm, so that their
// numbers of blocks differ by one at most; a range is empty when there are fewer blocks than servers.
std::vector<Range> shards_of(int64_t elements, int servers);

}  // namespace dtrain::engine
