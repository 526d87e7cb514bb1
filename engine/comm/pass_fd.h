// Passing an open descriptor to another process of this host, over a Unix socket.
#pragma once

#include "engine/comm/socket.h"

namespace dtrain::engine {

Status send_fd(Socket& to, int fd, Deadline deadline);
Result<Fd> receive_fd(Socket& from, Deadline deadline);

}  // namespace dtrain::engine
