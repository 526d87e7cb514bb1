#include "engine/comm/pass_fd.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace dtrain::engine {
namespace {

// A message of one byte that carries one descriptor.
struct Message {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};

  Message() {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;
};

}  // namespace

Status send_fd(Socket& to, int fd, Deadline deadline) {
  Message message;
  cmsghdr* const control = CMSG_FIRSTHDR(&message.header);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(control), &fd, sizeof(fd));
  // A Unix socket that has carried next to nothing has room for a byte.
  while (::sendmsg(to.fd(), &message.header, MSG_NOSIGNAL) != 1) {
    if (errno != EINTR && errno != EAGAIN) return to.gone(errno);
    TRY(to.wait_writable(deadline));
  }
  return ok();
}

Result<Fd> receive_fd(Socket& from, Deadline deadline) {
  while (true) {
    TRY(from.wait_readable(deadline));
    Message message;
    const ssize_t got = ::recvmsg(from.fd(), &message.header, MSG_CMSG_CLOEXEC);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return from.gone(got < 0 ? errno : 0);
    const cmsghdr* const control = CMSG_FIRSTHDR(&message.header);
    if (control == nullptr || control->cmsg_type != SCM_RIGHTS) {
      return Error{Code::Unavailable, from.name() + " passed no memory", ""};
    }
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(control), sizeof(fd));
    return Fd(fd);
  }
}

}  // namespace dtrain::engine
