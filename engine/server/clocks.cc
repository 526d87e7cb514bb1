#include "engine/server/clocks.h"

#include <algorithm>
#include <limits>

namespace dtrain::engine {

void Clocks::advance(int worker, uint64_t clock) {
  at(worker).clock = std::max(at(worker).clock, clock);
}

void Clocks::put_back(int worker) {
  if (at(worker).counted) return;
  const uint64_t others = slowest();
  if (others != std::numeric_limits<uint64_t>::max()) advance(worker, others);
  at(worker).counted = true;
}

uint64_t Clocks::slowest() const {
  uint64_t slowest = std::numeric_limits<uint64_t>::max();
  for (const Worker& worker : workers_) {
    if (worker.counted) slowest = std::min(slowest, worker.clock);
  }
  return slowest;
}

bool Clocks::may_pass(uint64_t clock, uint64_t staleness) const {
  return clock <= staleness || clock - staleness <= slowest();
}

}  // namespace dtrain::engine
