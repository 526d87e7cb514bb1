#include "daemon/listener.h"

#include <grpcpp/server_posix.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

namespace dtrain::daemon {

namespace {

namespace asio = boost::asio;

constexpr auto kRetry = std::chrono::milliseconds(100);

}  // namespace

Listener::Listener(asio::io_context& loop, grpc::Server& server)
    : server_(server), acceptor_(loop), retry_(loop) {}

Status Listener::listen(const std::filesystem::path& path) {
  boost::system::error_code error;
  acceptor_.open(Protocol(), error);
  if (error) return errno_error("make a socket", error.value());
  ::unlink(path.c_str());
  const mode_t mask = ::umask(0077);
  acceptor_.bind(path.native(), error);
  ::umask(mask);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    return Error{Code::Unavailable,
                 fmt::format("can't listen on {}: {}", path.native(), error.message()),
                 "is DTRAIN_HOME on a file system that has Unix sockets?"};
  }
  path_ = path;
  accept();
  return ok();
}

void Listener::accept() {
  acceptor_.async_accept([this](boost::system::error_code error, Protocol::socket socket) {
    if (!acceptor_.is_open()) return;
    if (error == asio::error::connection_aborted) return accept();
    if (error) {
      std::fprintf(stderr, "accept: %s\n", error.message().c_str());
      retry_.expires_after(kRetry);
      retry_.async_wait([this](boost::system::error_code stopped) {
        if (!stopped) accept();
      });
      return;
    }
    socket.non_blocking(true, error);
    if (!error) grpc::AddInsecureChannelFromFd(&server_, socket.release());
    accept();
  });
}

void Listener::close() {
  retry_.cancel();
  if (acceptor_.is_open()) ::unlink(path_.c_str());
  boost::system::error_code ignored;
  acceptor_.close(ignored);
}

}  // namespace dtrain::daemon
