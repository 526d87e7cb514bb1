// Connections between the processes of an experiment: TCP, or Unix on one host.
//
// Every call waits until its deadline at most and names the peer in its error. Codes: Unavailable
// when the peer is gone (end of stream, reset), DeadlineExceeded when it is silent. A peer that is
// gone never kills this process (no SIGPIPE).
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <span>
#include <string>

#include "engine/comm/deadline.h"
#include "schema/fd.h"
#include "schema/result.h"

namespace dtrain::engine {

// One connection. Owner and thread: whoever holds it; one thread may read while another writes.
// After an error the stream is at an unknown place: close it.
class Socket {
 public:
  Socket() = default;
  // Takes a connected stream socket; makes it non-blocking, and without delay if TCP.
  explicit Socket(Fd fd, std::string name);

  // "host:port", "[v6]:port" or "unix:/path" ("unix:@name" in the abstract namespace). Refused and
  // unreachable are tried again until the deadline: peers start at different moments.
  static Result<Socket> connect(const std::string& address, Deadline deadline);
  // Once; Unavailable if that may come to work later.
  static Result<Socket> try_connect(const std::string& address, Deadline deadline);

  // All of it.
  Status read(void* data, size_t size, Deadline deadline);
  Status write(const void* data, size_t size, Deadline deadline);
  Status write(std::span<const iovec> parts, Deadline deadline);

  // What is possible at once: 0 is "not now".
  Result<size_t> read_some(void* data, size_t size);
  Result<size_t> write_some(std::span<const iovec> parts);  // of at most kMostParts
  static constexpr size_t kMostParts = 64;

  // DeadlineExceeded unless there is something to read (or an end of stream) in time.
  Status wait_readable(Deadline deadline);
  // The same, unless there is room to write.
  Status wait_writable(Deadline deadline);

  // The peer closed or died, whatever may still be there to read.
  bool has_hung_up() const;

  int fd() const { return fd_.get(); }
  explicit operator bool() const { return static_cast<bool>(fd_); }
  void close() { fd_.reset(); }
  // What errors call the peer: "worker 2 at 10.0.0.3:4000". At first its address.
  void set_name(std::string name) { name_ = std::move(name); }
  const std::string& name() const { return name_; }

  // What a wait for this peer says when it ends in vain, for those who poll several at once: the
  // deadline passed; the stream ended (errno 0) or broke.
  Error silent(Deadline deadline) const;
  Error gone(int errno_value) const;

 private:
  Status wait(short events, Deadline deadline);

  Fd fd_;
  std::string name_ = "a peer";
};

// Where others connect to. Owner and thread: whoever holds it.
class Listener {
 public:
  Listener() = default;
  // Port 0: any free one. An empty host: every interface.
  static Result<Listener> open(const std::string& host, int port);
  // "unix:/path" or "unix:@name".
  static Result<Listener> open_unix(const std::string& address);

  Result<Socket> accept(Deadline deadline);
  int port() const { return port_; }  // 0 of a Unix one
  int fd() const { return fd_.get(); }
  explicit operator bool() const { return static_cast<bool>(fd_); }
  void close() { fd_.reset(); }

 private:
  Fd fd_;
  int port_ = 0;
  std::string name_;
};

// "10.0.0.3:4000" into its parts; InvalidArgument when there is no port from 0 to 65535.
struct HostPort {
  std::string host;
  int port = 0;
};
Result<HostPort> parse_host_port(const std::string& address);

// Where to listen for those who come to "10.0.0.3:4000": "0.0.0.0:4000". By that name a host may mean its loopback, and
// behind a router no interface of it has that address. Loopback stays what it is, and so does what is no host:port.
std::string listening_address(const std::string& address);

}  // namespace dtrain::engine
