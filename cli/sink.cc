#include "cli/sink.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace dtrain::cli {

namespace {
// Fewer switches between us and the reader of a pipe; refused for anything else.
constexpr int kPipeBytes = 1 << 20;
}  // namespace

Sink::Sink(int fd) : fd_(fd) {
  signal(SIGPIPE, SIG_IGN);
  fcntl(fd, F_SETPIPE_SZ, kPipeBytes);
}

bool Sink::write(std::string_view bytes) {
  while (!closed() && !bytes.empty()) {
    ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {
      // A shell or ssh may have left the terminal in non-blocking mode.
      pollfd wait{fd_, POLLOUT, 0};
      poll(&wait, 1, -1);
    } else if (errno != EINTR) {
      error_ = errno;  // EPIPE, or EIO of a terminal that is gone, or no room
    }
  }
  return !closed();
}

size_t Sink::write_some(std::string_view bytes) {
  // A pipe that has room has room for that.
  constexpr size_t kPart = 4096;
  const ssize_t written = closed() ? 0 : ::write(fd_, bytes.data(), std::min(bytes.size(), kPart));
  if (written >= 0) return static_cast<size_t>(written);
  if (errno != EINTR && errno != EAGAIN) error_ = errno;
  return 0;
}

bool Sink::reader_left() const {
  pollfd look{fd_, 0, 0};
  return poll(&look, 1, 0) == 1 && (look.revents & (POLLERR | POLLHUP)) != 0;
}

Status Sink::written() const {
  if (error_ == ENOSPC || error_ == EDQUOT || error_ == EFBIG) return output_error(error_);
  return ok();
}

Error output_error(int errno_value) {
  return {Code::DataLoss, errno_error("writing the output", errno_value).message, ""};
}

}  // namespace dtrain::cli
