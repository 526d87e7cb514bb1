#include "cli/signals.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <iterator>

#include "schema/result.h"

namespace dtrain::cli {

namespace {

// The handler can reach nothing but a global; it only writes one byte.
volatile int wake_fd = -1;

void on_signal(int signal_number) {
  int saved_errno = errno;
  unsigned char byte = static_cast<unsigned char>(signal_number);
  [[maybe_unused]] ssize_t written = write(wake_fd, &byte, 1);
  errno = saved_errno;
}

bool is_typed(int number) {
  return number == SIGINT || number == SIGQUIT;
}

// What was done with the signal before.
struct sigaction catch_signal(int number, bool once, bool interrupting) {
  struct sigaction action {}, before {};
  action.sa_handler = on_signal;
  action.sa_flags = (interrupting ? 0 : SA_RESTART) | (once ? static_cast<int>(SA_RESETHAND) : 0);
  sigaction(number, &action, &before);
  return before;
}

}  // namespace

Signals::Signals(const std::vector<int>& signals, bool interrupting) : interrupting_(interrupting) {
  INVARIANT(wake_fd == -1, "one Signals at a time");
  int ends[2];
  INVARIANT(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0, "a pipe for signals");
  read_fd_ = ends[0];
  wake_fd = ends[1];
  for (int number : signals) {
    const struct sigaction before = catch_signal(number, is_typed(number), interrupting_);
    // A signal that the parent had switched off (nohup, a shell without jobs) stays off.
    const bool may_be_off = number == SIGHUP || number == SIGTSTP;
    if (before.sa_handler == SIG_IGN && may_be_off) sigaction(number, &before, nullptr);
    before_.emplace_back(number, before);
  }
}

Signals::~Signals() {
  for (const auto& [number, action] : before_) sigaction(number, &action, nullptr);
  int write_fd = wake_fd;
  wake_fd = -1;
  close(write_fd);
  close(read_fd_);
}

int Signals::take() {
  unsigned char byte = 0;
  return read(read_fd_, &byte, 1) == 1 ? byte : 0;
}

void Signals::take_all() {
  for (const auto& [number, before] : before_) {
    if (is_typed(number)) catch_signal(number, false, interrupting_);
  }
}

void Signals::end_at_next() {
  for (const auto& [number, before] : before_) {
    if (is_typed(number)) signal(number, SIG_DFL);
  }
}

std::unique_ptr<Signals> tied_signals() {
  return std::make_unique<Signals>(std::vector<int>{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH});
}

void end_by(int number) {
  signal(number, SIG_DFL);
  raise(number);
}

void wait_readable(int fd, int other_fd, int64_t timeout_ms, int output_fd) {
  pollfd waits[] = {{fd, POLLIN, 0}, {other_fd, POLLIN, 0}, {output_fd, 0, 0}};
  int timeout = timeout_ms < 0 ? -1 : static_cast<int>(std::min<int64_t>(timeout_ms, INT_MAX));
  poll(waits, std::size(waits), timeout);  // a signal ends it early, which is as good as an event
}

}  // namespace dtrain::cli
