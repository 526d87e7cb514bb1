// A barrier in shared memory for a fixed number of members, to be passed again and again.
#pragma once

#include "engine/comm/waiting.h"

namespace dtrain::engine {

// All zero is its start. Epochs count from 1 and wrap; each member passes them all, in order.
struct Barrier {
  alignas(64) Word arrived;   // members that came to the epoch that is open
  alignas(64) Signal passed;  // the last epoch that everyone came to

  // True once all `members` have come to `epoch`; false on the deadline. What each wrote before it
  // came is there for all to read afterwards.
  Result<bool> pass(uint32_t members, uint32_t epoch, const Patience& patience) {
    // Acquire and release: the last to arrive has all writes of those before, and releases them to
    // those who wait when it sets `passed`.
    if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == members) {
      // Nobody can come to the next epoch before `passed` is set, so this is no race.
      arrived.store(0, std::memory_order_relaxed);
      passed.set(epoch);
      return true;
    }
    Result<bool> all = wait_for(passed, patience,
                                [epoch](uint32_t value) { return has_come_to(value, epoch); });
#if defined(__SANITIZE_THREAD__)
    // It sees one process alone. Where another's member came last, `passed` was set there, and only this word tells it
    // of the threads here that came before.
    static_cast<void>(arrived.load(std::memory_order_acquire));
#endif
    return all;
  }
};
static_assert(sizeof(Barrier) == 128);

}  // namespace dtrain::engine
