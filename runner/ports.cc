#include "runner/ports.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace dtrain::runner {

Status HeldPorts::hold(int port) {
  if (port == 0) return ok();
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno_error(fmt::format("hold port {}", port), errno);
  const int on = 1;
  // Closed connections of an earlier replica must not keep the port; a listener must.
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    const int error = errno;
    close(fd);
    if (error == EADDRINUSE) {
      return Error{Code::AlreadyExists, fmt::format("port {} is in use by another program", port),
                   fmt::format("`ss -ltnp sport = :{}` shows which", port)};
    }
    return errno_error(fmt::format("hold port {}", port), error);
  }
  // Set only after bind: before it, a stranger that listens with SO_REUSEPORT (as gRPC servers do)
  // would not be noticed. Set at all so that such a server may bind while this one is being closed.
  setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
  fds_.push_back(fd);
  return ok();
}

void HeldPorts::release() {
  for (const int fd : fds_) close(fd);
  fds_.clear();
}

}  // namespace dtrain::runner
