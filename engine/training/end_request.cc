#include "engine/training/end_request.h"

#include <atomic>
#include <cstdlib>

namespace dtrain::engine {

namespace {

std::atomic<bool> made = false;
static_assert(std::atomic<bool>::is_always_lock_free);

void remember(int) { made.store(true, std::memory_order_relaxed); }

struct sigaction on_term(void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  return action;
}

}  // namespace

EndRequest::EndRequest() {
  made = false;
  const auto action = on_term(remember, SA_RESTART | static_cast<int>(SA_RESETHAND));
  ::sigaction(SIGTERM, &action, &before_);
}

EndRequest::~EndRequest() { ::sigaction(SIGTERM, &before_, nullptr); }

bool EndRequest::is_made() const { return made.load(std::memory_order_relaxed); }

void end_by_request() {
  const auto action = on_term(SIG_DFL, 0);
  ::sigaction(SIGTERM, &action, nullptr);
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  ::sigprocmask(SIG_UNBLOCK, &term, nullptr);
  std::raise(SIGTERM);
  std::_Exit(128 + SIGTERM);   // the first process of a container, for which TERM does nothing by itself
}

}  // namespace dtrain::engine
