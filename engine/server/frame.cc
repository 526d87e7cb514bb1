#include "engine/server/frame.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace dtrain::engine::server {

Error other_job() {
  return {Code::FailedPrecondition, "it is of another experiment, or its configuration differs from this worker's",
          "run the same dtrain-engine with the same settings everywhere"};
}

Status check(const Frame& frame, bool from_server) {
  if (frame.magic != Frame::kMagic) {
    return Error{Code::InvalidArgument, "not a frame of dtrain-engine", ""};
  }
  if (frame.version != Frame::kVersion) {
    return Error{Code::InvalidArgument, fmt::format("a frame of version {}", frame.version),
                 "run the same dtrain-engine on all hosts"};
  }
  const ServerOp first = from_server ? ServerOp::Welcome : ServerOp::Hello;
  const ServerOp last = from_server ? ServerOp::Failure : ServerOp::Finish;
  if (frame.op < first || frame.op > last) {
    return Error{Code::InvalidArgument,
                 fmt::format("a frame of unknown kind {}", static_cast<int>(frame.op)), ""};
  }
  return ok();
}

void watch_peer(const Socket& socket) {
  const auto set = [&](int level, int option, int value) {
    ::setsockopt(socket.fd(), level, option, &value, sizeof(value));  // fails on a Unix socket
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 2);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

}  // namespace dtrain::engine::server
