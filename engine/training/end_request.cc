#include "engine/training/end_request.h"

#include <atomic>
#include <csignal>
#include <cstdlib>

namespace dtrain::engine {

namespace {

std::atomic<bool> made = false;
static_assert(std::atomic<bool>::is_always_lock_free);

void remember(int) { made.store(true, std::memory_order_relaxed); }

void set(void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  ::sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

EndRequest::EndRequest() {
  made = false;
  set(remember, SA_RESTART | SA_RESETHAND);
}

EndRequest::~EndRequest() { set(SIG_DFL, 0); }

bool EndRequest::is_made() const { return made.load(std::memory_order_relaxed); }

void end_by_request() {
  set(SIG_DFL, 0);
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  ::sigprocmask(SIG_UNBLOCK, &term, nullptr);
  std::raise(SIGTERM);
  std::_Exit(128 + SIGTERM);
}

}  // namespace dtrain::engine
