#include "runner/process_watch.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <utility>

namespace dtrain::runner {
namespace asio = boost::asio;

struct ProcessWatch::Waiting : std::enable_shared_from_this<ProcessWatch::Waiting> {
  Waiting(asio::io_context& loop, Fd pidfd) : descriptor(loop, pidfd.release()) {}

  void wait() {
    descriptor.async_wait(asio::posix::stream_descriptor::wait_read,
                          [self = shared_from_this()](boost::system::error_code error) {
                            if (error) return;
                            if (!self->has_ended()) return self->wait();
                            if (self->child.pid > 0) try_reap(self->child);
                            self->descriptor.close();
                            if (auto tell = std::exchange(self->gone, nullptr)) tell();
                          });
  }

  // A wait can be woken for nothing; taken for the end, that would give up a keeper that lives.
  bool has_ended() {
    pollfd entry{descriptor.native_handle(), POLLIN, 0};
    return ::poll(&entry, 1, 0) == 1;
  }

  asio::posix::stream_descriptor descriptor;
  Child child;                 // pid -1: not ours to reap
  std::function<void()> gone;  // empty: nobody wants to know any more
};

ProcessWatch::ProcessWatch(std::shared_ptr<Waiting> waiting) : waiting_(std::move(waiting)) {}

std::unique_ptr<ProcessWatch> ProcessWatch::of(asio::io_context& loop, Child child,
                                               std::function<void()> gone) {
  auto waiting = std::make_shared<Waiting>(loop, std::move(child.pidfd));
  waiting->child.pid = child.pid;
  waiting->gone = std::move(gone);
  waiting->wait();
  return std::unique_ptr<ProcessWatch>(new ProcessWatch(std::move(waiting)));
}

Result<std::unique_ptr<ProcessWatch>> ProcessWatch::of(asio::io_context& loop,
                                                       const ProcessIdentity& process,
                                                       std::function<void()> gone) {
  Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)));
  if (!pidfd && errno != ESRCH) return errno_error(fmt::format("watch {}", process.pid), errno);
  // Compared only now, with the descriptor held: the pid can't go to another process in between.
  bool alive = false;
  if (pidfd) {
    TRY(alive, check_alive(process));
  }
  if (!alive) return Error{Code::NotFound, "the process has ended", ""};
  auto waiting = std::make_shared<Waiting>(loop, std::move(pidfd));
  waiting->gone = std::move(gone);
  waiting->wait();
  return std::unique_ptr<ProcessWatch>(new ProcessWatch(std::move(waiting)));
}

void ProcessWatch::signal(int number) const {
  if (!waiting_->descriptor.is_open()) return;
  syscall(SYS_pidfd_send_signal, waiting_->descriptor.native_handle(), number, nullptr, 0);
}

ProcessWatch::~ProcessWatch() {
  waiting_->gone = nullptr;
  // Of a process that is not our child nothing is left to do; a child is reaped when it ends.
  if (waiting_->child.pid <= 0) {
    boost::system::error_code ignored;
    waiting_->descriptor.close(ignored);
  }
}

}  // namespace dtrain::runner
