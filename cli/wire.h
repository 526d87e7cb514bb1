// What the bytes of a channel go over: a socket, or TLS on one (cli/tls_wire.h).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <utility>

#include "schema/fd.h"

namespace dtrain::cli {

class Wire {
 public:
  virtual ~Wire() = default;

  // For poll(). Whatever has come, receive() takes in: when it had nothing more, the next byte makes this readable.
  virtual int fd() const = 0;
  // As send(2) and recv(2) without waiting: -1 and errno, which is EAGAIN where nothing goes or came; receive() 0 at the end.
  virtual ssize_t send(const char* data, size_t size) = 0;
  virtual ssize_t receive(char* data, size_t size) = 0;
};

class SocketWire final : public Wire {
 public:
  explicit SocketWire(Fd socket) : socket_(std::move(socket)) {}

  int fd() const override { return socket_.get(); }
  ssize_t send(const char* data, size_t size) override;
  ssize_t receive(char* data, size_t size) override;

 private:
  Fd socket_;
};

}  // namespace dtrain::cli
