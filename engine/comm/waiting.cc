#include "engine/comm/waiting.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

namespace dtrain::engine {
namespace {

constexpr int kSleep_ms = 50;

// Not private: the word may be in memory of several processes.
void futex_wait(Word& word, uint32_t expected, int timeout_ms) {
  const timespec timeout{timeout_ms / 1000, timeout_ms % 1000 * 1'000'000L};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

void Signal::wake() {
  if (sleepers.load(std::memory_order_seq_cst) > 0) {
    ::syscall(SYS_futex, &value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

void Signal::set(uint32_t to) {
  value.store(to, std::memory_order_seq_cst);
  wake();
}

void Signal::add(uint32_t by) {
  value.fetch_add(by, std::memory_order_seq_cst);
  wake();
}

Result<bool> wait_for(Signal& signal, const Patience& patience,
                      const std::function<bool(uint32_t)>& reached) {
  for (int i = 0; i < patience.spins; ++i) {
    if (reached(signal.value.load(std::memory_order_acquire))) return true;
    relax();
  }
  while (true) {
    const uint32_t seen = signal.value.load(std::memory_order_seq_cst);
    if (reached(seen)) return true;
    const int left_ms = patience.deadline.remaining_ms();
    if (left_ms == 0) return false;
    signal.sleepers.fetch_add(1, std::memory_order_seq_cst);
    futex_wait(signal.value, seen, std::min(left_ms, kSleep_ms));
    signal.sleepers.fetch_sub(1, std::memory_order_seq_cst);
    // Who has done its part may have left since: that comes first.
    if (signal.value.load(std::memory_order_acquire) != seen || patience.look == nullptr) continue;
    if (auto news = (*patience.look)(); !news.ok()) {
      if (reached(signal.value.load(std::memory_order_acquire))) return true;
      return std::move(news).error();
    }
  }
}

}  // namespace dtrain::engine
