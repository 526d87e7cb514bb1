#include "engine/kernels/crew.h"

#include <utility>

#include "engine/cpus.h"

namespace dtrain::engine {
namespace {

// Longer than what lies between two operations of a step; the end of an epoch may be slept through.
constexpr int kCrewSpins = 20000;

}  // namespace

void Crew::wait_until_not(const std::atomic<uint32_t>& word, uint32_t old) const {
  for (int i = 0; i < spins_; ++i) {
    if (word.load(std::memory_order_acquire) != old) return;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  word.wait(old, std::memory_order_acquire);
}

Crew::Crew(int hands) : spins_(hands <= cpus() ? kCrewSpins : 0) {
  for (int i = 1; i < hands; ++i) threads_.emplace_back([this, i] { help(i); });
}

Crew::~Crew() {
  over_ = true;
  begun_.fetch_add(1, std::memory_order_release);
  begun_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

// Release and acquire, each way: those who help see the job and what the caller wrote before it, and the
// caller what they wrote.
void Crew::run_all(const Job& job) {
  job_ = job;
  const uint32_t all = done_.load(std::memory_order_relaxed) + static_cast<uint32_t>(threads_.size());
  begun_.fetch_add(1, std::memory_order_release);
  begun_.notify_all();
  call(0);
  for (uint32_t done; (done = done_.load(std::memory_order_acquire)) != all;) wait_until_not(done_, done);
  if (failed_.load(std::memory_order_relaxed)) {
    failed_.store(false, std::memory_order_relaxed);
    std::rethrow_exception(std::exchange(thrown_, nullptr));
  }
}

// Others may still compute: nobody leaves before all have ended.
void Crew::call(int i) {
  try {
    job_.call(job_.part, i);
  } catch (...) {
    if (!failed_.exchange(true, std::memory_order_relaxed)) thrown_ = std::current_exception();
  }
}

void Crew::help(int i) {
  for (uint32_t seen = 0;; ++seen) {
    wait_until_not(begun_, seen);
    if (over_) return;
    call(i);
    done_.fetch_add(1, std::memory_order_release);
    done_.notify_one();
  }
}

}  // namespace dtrain::engine
