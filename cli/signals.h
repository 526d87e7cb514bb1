// Signals as facts to be waited for together with other events.
//
// While a Signals lives, the named signals no longer end the process; take() tells which arrived.
// The second SIGINT or SIGQUIT ends the process at once: a person who presses Ctrl-C twice means
// it, but not from take_all() to end_at_next(). At most one at a time. Thread: the one that made it.
#pragma once

#include <signal.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace dtrain::cli {

class Signals {
 public:
  // `interrupting`: they end a read or a write that waits, which then is EINTR.
  explicit Signals(const std::vector<int>& signals, bool interrupting = false);
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int fd() const { return read_fd_; }  // readable when take() has something
  int take();                          // the next signal that arrived; 0: none
  void take_all();                     // also a second SIGINT or SIGQUIT
  void end_at_next();                  // by SIGINT or SIGQUIT

 private:
  const bool interrupting_;
  int read_fd_ = -1;
  std::vector<std::pair<int, struct sigaction>> before_;
};

// Of a command that is tied to its experiment and ends it when it leaves: from before that is
// submitted on.
std::unique_ptr<Signals> tied_signals();

// Ends this process as the signal would have.
void end_by(int number);

// Waits until one of the descriptors is readable, nobody reads what is written to `output_fd` any
// more, or the time is over (-1: no limit). Negative descriptors are left out.
void wait_readable(int fd, int other_fd, int64_t timeout_ms, int output_fd = -1);

}  // namespace dtrain::cli
