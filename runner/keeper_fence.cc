#include "runner/keeper_fence.h"

#include <pthread.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>
#include <vector>

#include "runner/process_tree.h"
#include "schema/clock.h"

namespace dtrain::runner {
namespace {

constexpr int64_t kFenceAgainMs = 500;

std::vector<ProcessRow> alive_below_self() {
  std::vector<ProcessRow> alive;
  const std::vector<std::vector<ProcessRow>> trees = split_tree(ProcessTable::read_below_self(), ::getpid(), {});
  for (const ProcessRow& row : trees.back()) alive.push_back(row);
  return alive;
}

}  // namespace

KeeperFence::~KeeperFence() {
  if (!thread_.joinable()) return;
  ends_ = true;
  kill_at(1);
  thread_.join();
}

Status KeeperFence::begin() {
  timer_.reset(::timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC));
  if (!timer_) return errno_error("a timer", errno);
  // Signals are the loop's.
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& e) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return Error{Code::ResourceExhausted, fmt::format("a thread: {}", e.what()), ""};
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return ok();
}

void KeeperFence::kill_at(int64_t at_ms) {
  itimerspec when{};
  when.it_value.tv_sec = at_ms / 1000;
  when.it_value.tv_nsec = (at_ms % 1000) * 1'000'000;
  ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

void KeeperFence::run() {
  for (;;) {
    uint64_t expirations = 0;
    if (::read(timer_.get(), &expirations, sizeof expirations) < 0 && errno != EINTR) return;
    if (ends_) return;
    const std::vector<ProcessRow> alive = alive_below_self();
    if (alive.empty()) continue;
    has_killed_ = true;
    signal_processes(alive, SIGKILL);
    kill_at(boottime_ms() + kFenceAgainMs);
  }
}

}  // namespace dtrain::runner
