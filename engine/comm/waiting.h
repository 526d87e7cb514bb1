// Waiting for a word in shared memory that another participant will change: spins first if every
// participant has a processor to itself, then sleeps on a futex, in slices, so that one that died
// is noticed by those who wait for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "engine/comm/deadline.h"
#include "schema/result.h"

namespace dtrain::engine {

using Word = std::atomic<uint32_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == sizeof(uint32_t));

// A word that others wait on. Lies in shared memory; all zero is its start.
struct Signal {
  Word value;
  Word sleepers;

  // The order of the two is the whole point, here and in wait_for(): the one who changes stores,
  // then looks for sleepers; the one who sleeps counts itself, then looks at the value (in the
  // kernel). All sequentially consistent, so that one of them sees the other, and nobody sleeps
  // through a change. The store also releases what the changer wrote before to those who see the
  // value.
  void set(uint32_t to);
  void add(uint32_t by);

 private:
  void wake();
};

struct Patience {
  Deadline deadline;
  int spins = 0;
  // Whether it is still worth waiting; asked between slices. Its error ends the wait.
  const std::function<Status()>* look = nullptr;
};

// True once reached(value); false on the deadline.
Result<bool> wait_for(Signal& signal, const Patience& patience,
                      const std::function<bool(uint32_t)>& reached);

// Counters that go up by one and wrap: has `value` come to `target`?
inline bool has_come_to(uint32_t value, uint32_t target) {
  return static_cast<int32_t>(value - target) >= 0;
}

}  // namespace dtrain::engine
