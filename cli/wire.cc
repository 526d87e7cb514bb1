#include "cli/wire.h"

#include <sys/socket.h>

namespace dtrain::cli {

ssize_t SocketWire::send(const char* data, size_t size) { return ::send(fd(), data, size, MSG_NOSIGNAL | MSG_DONTWAIT); }

ssize_t SocketWire::receive(char* data, size_t size) { return ::recv(fd(), data, size, MSG_DONTWAIT); }

}  // namespace dtrain::cli
