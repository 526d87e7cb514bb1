#include "daemon/listener.h"

#include <grpcpp/server_posix.h>
#include <sys/stat.h>
#include <unistd.h>

namespace dtrain::daemon {

namespace asio = boost::asio;

Listener::Listener(asio::io_context& loop, grpc::Server& server)
    : acceptor_(loop, [&server](auto socket) { grpc::AddInsecureChannelFromFd(&server, socket.release()); }) {}

Status Listener::listen(const std::filesystem::path& path) {
  boost::system::error_code error;
  auto& socket = acceptor_.socket();
  socket.open(asio::local::stream_protocol(), error);
  if (error) return errno_error("make a socket", error.value());
  ::unlink(path.c_str());
  const mode_t mask = ::umask(0077);
  socket.bind(path.native(), error);
  ::umask(mask);
  if (!error) socket.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    return Error{Code::Unavailable,
                 fmt::format("can't listen on {}: {}", path.native(), error.message()),
                 "is DTRAIN_HOME on a file system that has Unix sockets?"};
  }
  path_ = path;
  acceptor_.accept();
  return ok();
}

void Listener::close() {
  if (acceptor_.is_open()) ::unlink(path_.c_str());
  acceptor_.close();
}

}  // namespace dtrain::daemon
