#include "engine/comm/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>

namespace dtrain::engine {
namespace {

constexpr std::string_view kUnix = "unix:";
// Between two tries to connect to one that refuses.
constexpr int kRetry_ms = 20;

// Where a socket is bound or connects to, of any family.
struct Endpoint {
  sockaddr_storage storage{};
  socklen_t size = 0;
  const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

Result<Endpoint> unix_endpoint(const std::string& address) {
  std::string path = address.substr(kUnix.size());
  Endpoint endpoint;
  auto* un = reinterpret_cast<sockaddr_un*>(&endpoint.storage);
  if (path.empty() || path.size() >= sizeof(un->sun_path)) {
    return Error{Code::InvalidArgument, "not a Unix address: " + address, ""};
  }
  un->sun_family = AF_UNIX;
  std::memcpy(un->sun_path, path.data(), path.size());
  // An abstract name starts with a zero and has no zero at its end.
  const bool abstract = path[0] == '@';
  if (abstract) un->sun_path[0] = '\0';
  endpoint.size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + (abstract ? 0 : 1));
  return endpoint;
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

// Null and `reason` while the name cannot be looked up just now.
Result<Addresses> look_up(const HostPort& at, int flags, std::string* reason) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(at.host.empty() ? nullptr : at.host.c_str(),
                                  std::to_string(at.port).c_str(), &hints, &list);
  if (error == 0) return Addresses(list);
  *reason = ::gai_strerror(error);
  if (error == EAI_AGAIN) return Addresses();
  return Error{Code::InvalidArgument, fmt::format("look up {}: {}", at.host, *reason),
               "check the addresses of the hosts"};
}

// A socket that connects to a port of its own range of ports on this host may meet itself.
bool met_itself(int fd) {
  Endpoint own, peer;
  own.size = peer.size = sizeof(sockaddr_storage);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own.storage), &own.size) != 0) return false;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer.storage), &peer.size) != 0) return false;
  return own.size == peer.size && own.storage.ss_family != AF_UNIX &&
         std::memcmp(&own.storage, &peer.storage, own.size) == 0;
}

// The errno of the attempt; 0 is success, ETIMEDOUT also the deadline.
int connect_once(int fd, const sockaddr* address, socklen_t size, Deadline deadline) {
  if (::connect(fd, address, size) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return errno;
    pollfd waiting{fd, POLLOUT, 0};
    int ready = 0;
    do {
      ready = ::poll(&waiting, 1, deadline.remaining_ms());
    } while (ready < 0 && errno == EINTR);
    if (ready == 0) return ETIMEDOUT;
    int error = 0;
    socklen_t length = sizeof(error);
    if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
    if (error != 0) return error;
  }
  return met_itself(fd) ? ECONNREFUSED : 0;
}

bool may_come_up(int error) {
  return error == ECONNREFUSED || error == EHOSTUNREACH || error == ENETUNREACH ||
         error == ETIMEDOUT || error == ECONNRESET || error == ECONNABORTED || error == ENOENT ||
         error == EAGAIN;
}

Fd new_socket(int family) {
  return Fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

}  // namespace

Result<HostPort> parse_host_port(const std::string& address) {
  const size_t colon = address.rfind(':');
  HostPort parsed;
  if (colon != std::string::npos) {
    parsed.host = address.substr(0, colon);
    if (parsed.host.size() >= 2 && parsed.host.front() == '[' && parsed.host.back() == ']') {
      parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
    }
    const char* const begin = address.data() + colon + 1;
    const char* const end = address.data() + address.size();
    const auto [rest, error] = std::from_chars(begin, end, parsed.port);
    if (error == std::errc() && rest == end && begin != end && parsed.port >= 0 &&
        parsed.port <= 65535) {
      return parsed;
    }
  }
  return Error{Code::InvalidArgument, fmt::format("not host:port: \"{}\"", address), ""};
}

std::string listening_address(const std::string& address) {
  const auto at = parse_host_port(address);
  if (!at.ok() || at->host.starts_with("127.") || at->host == "localhost" || at->host == "::1") return address;
  return fmt::format("{}:{}", at->host.find(':') != std::string::npos ? "[::]" : "0.0.0.0", at->port);
}

Socket::Socket(Fd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {
  const int flags = ::fcntl(fd_.get(), F_GETFL);
  ::fcntl(fd_.get(), F_SETFL, flags | O_NONBLOCK);
  // Fails on a Unix socket, which has no delay.
  const int one = 1;
  ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

Result<Socket> Socket::try_connect(const std::string& address, Deadline deadline) {
  int error = EAGAIN;
  std::string reason;
  if (address.starts_with(kUnix)) {
    TRY(const Endpoint endpoint, unix_endpoint(address));
    Fd fd = new_socket(AF_UNIX);
    error = fd ? connect_once(fd.get(), endpoint.address(), endpoint.size, deadline) : errno;
    if (error == 0) return Socket(std::move(fd), address);
  } else {
    TRY(const HostPort at, parse_host_port(address));
    // Each time: a name may come to mean another host while we try.
    TRY(const Addresses list, look_up(at, 0, &reason));
    for (const addrinfo* next = list.get(); next != nullptr; next = next->ai_next) {
      Fd fd = new_socket(next->ai_family);
      error = fd ? connect_once(fd.get(), next->ai_addr, next->ai_addrlen, deadline) : errno;
      if (error == 0) return Socket(std::move(fd), address);
    }
  }
  Error failure = errno_error("connect to " + address, error);
  if (!reason.empty()) failure.message = fmt::format("connect to {}: {}", address, reason);
  failure.code = may_come_up(error) ? Code::Unavailable : Code::Internal;
  return failure;
}

Result<Socket> Socket::connect(const std::string& address, Deadline deadline) {
  while (true) {
    auto socket = try_connect(address, deadline);
    if (socket.ok() || socket.error().code != Code::Unavailable) return socket;
    if (deadline.expired()) {
      return Error{Code::DeadlineExceeded,
                   fmt::format("{} did not accept a connection for {:g} s: {}", address,
                               deadline.seconds(), socket.error().message),
                   "look at the log of that process"};
    }
    ::poll(nullptr, 0, std::min(kRetry_ms, deadline.remaining_ms()));
  }
}

Error Socket::silent(Deadline deadline) const {
  return {Code::DeadlineExceeded,
          fmt::format("{} did not answer for {:g} s", name_, deadline.seconds()),
          "look at the log of that process"};
}

Error Socket::gone(int errno_value) const {
  switch (errno_value) {
    case 0:
      return {Code::Unavailable, name_ + " closed the connection",
              "look at the log of that process"};
    case ECONNRESET:
    case EPIPE:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETRESET:
      return {Code::Unavailable,
              fmt::format("lost the connection to {}: {}", name_, std::strerror(errno_value)),
              "look at the log of that process"};
    default:
      return errno_error("talk to " + name_, errno_value);
  }
}

Status Socket::wait(short events, Deadline deadline) {
  pollfd waiting{fd_.get(), events, 0};
  while (true) {
    const int ready = ::poll(&waiting, 1, deadline.remaining_ms());
    if (ready > 0) return ok();
    if (ready < 0 && errno != EINTR) return errno_error("poll", errno);
    if (deadline.expired()) return silent(deadline);
  }
}

Status Socket::wait_readable(Deadline deadline) {
  return wait(POLLIN, deadline);
}

Status Socket::wait_writable(Deadline deadline) {
  return wait(POLLOUT, deadline);
}

Result<size_t> Socket::read_some(void* data, size_t size) {
  while (true) {
    const ssize_t count = ::recv(fd_.get(), data, size, 0);
    if (count > 0) return static_cast<size_t>(count);
    if (count == 0) {
      if (size == 0) return size_t{0};
      return gone(0);
    }
    if (errno == EAGAIN) return size_t{0};
    if (errno != EINTR) return gone(errno);
  }
}

Result<size_t> Socket::write_some(std::span<const iovec> parts) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());  // sendmsg only reads them
  message.msg_iovlen = std::min(parts.size(), kMostParts);
  while (true) {
    const ssize_t count = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
    if (count >= 0) return static_cast<size_t>(count);
    if (errno == EAGAIN) return size_t{0};
    if (errno != EINTR) return gone(errno);
  }
}

Status Socket::read(void* data, size_t size, Deadline deadline) {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    TRY(const size_t count, read_some(at, size));
    if (count == 0) TRY(wait(POLLIN, deadline));
    at += count;
    size -= count;
  }
  return ok();
}

Status Socket::write(const void* data, size_t size, Deadline deadline) {
  const iovec part{const_cast<void*>(data), size};
  return write(std::span(&part, 1), deadline);
}

Status Socket::write(std::span<const iovec> parts, Deadline deadline) {
  std::array<iovec, kMostParts> now{};
  while (!parts.empty()) {
    // A copy of what is next, for a write may end in the middle of a part.
    const size_t taken = std::min(parts.size(), now.size());
    std::copy_n(parts.begin(), taken, now.begin());
    parts = parts.subspan(taken);
    std::span<iovec> left(now.data(), taken);
    while (!left.empty()) {
      if (left.front().iov_len == 0) {
        left = left.subspan(1);
        continue;
      }
      TRY(size_t count, write_some(left));
      if (count == 0) TRY(wait(POLLOUT, deadline));
      while (count > 0) {
        const size_t part = std::min(count, left.front().iov_len);
        left.front().iov_base = static_cast<char*>(left.front().iov_base) + part;
        left.front().iov_len -= part;
        count -= part;
        if (left.front().iov_len == 0) left = left.subspan(1);
      }
    }
  }
  return ok();
}

bool Socket::has_hung_up() const {
  pollfd waiting{fd_.get(), POLLRDHUP, 0};
  return ::poll(&waiting, 1, 0) > 0 && (waiting.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

Result<Listener> Listener::open(const std::string& host, int port) {
  std::string reason;
  const std::string name = fmt::format("{}:{}", host, port);
  TRY(Addresses list, look_up({host, port}, AI_PASSIVE, &reason));
  int error = EADDRNOTAVAIL;
  for (const addrinfo* next = list.get(); next != nullptr; next = next->ai_next) {
    Fd fd = new_socket(next->ai_family);
    if (!fd) {
      error = errno;
      continue;
    }
    // The port may have been an earlier attempt's a moment ago.
    const int one = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (::bind(fd.get(), next->ai_addr, next->ai_addrlen) != 0 ||
        ::listen(fd.get(), SOMAXCONN) != 0) {
      error = errno;
      continue;
    }
    Endpoint own;
    own.size = sizeof(sockaddr_storage);
    ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own.storage), &own.size);
    Listener listener;
    listener.port_ = ntohs(own.storage.ss_family == AF_INET6
                               ? reinterpret_cast<sockaddr_in6*>(&own.storage)->sin6_port
                               : reinterpret_cast<sockaddr_in*>(&own.storage)->sin_port);
    listener.name_ = fmt::format("{}:{}", host, listener.port_);
    listener.fd_ = std::move(fd);
    return listener;
  }
  return errno_error("listen at " + name, error);
}

Result<Listener> Listener::open_unix(const std::string& address) {
  TRY(const Endpoint endpoint, unix_endpoint(address));
  Fd fd = new_socket(AF_UNIX);
  if (!fd || ::bind(fd.get(), endpoint.address(), endpoint.size) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0) {
    return errno_error("listen at " + address, errno);
  }
  Listener listener;
  listener.name_ = address;
  listener.fd_ = std::move(fd);
  return listener;
}

Result<Socket> Listener::accept(Deadline deadline) {
  pollfd waiting{fd_.get(), POLLIN, 0};
  while (true) {
    Endpoint peer;
    peer.size = sizeof(sockaddr_storage);
    Fd fd(::accept4(fd_.get(), reinterpret_cast<sockaddr*>(&peer.storage), &peer.size,
                    SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) {
      std::array<char, NI_MAXHOST> host{};
      std::array<char, NI_MAXSERV> service{};
      std::string name = name_;
      if (peer.storage.ss_family != AF_UNIX &&
          ::getnameinfo(peer.address(), peer.size, host.data(), host.size(), service.data(),
                        service.size(), NI_NUMERICHOST | NI_NUMERICSERV) == 0) {
        name = fmt::format("{}:{}", host.data(), service.data());
      }
      return Socket(std::move(fd), std::move(name));
    }
    // A connection that was gone before it was accepted is none.
    if (errno == ECONNABORTED || errno == EINTR) continue;
    if (errno != EAGAIN) return errno_error("accept at " + name_, errno);
    if (deadline.expired()) {
      return Error{Code::DeadlineExceeded,
                   fmt::format("nobody connected to {} for {:g} s", name_, deadline.seconds()), ""};
    }
    ::poll(&waiting, 1, deadline.remaining_ms());
  }
}

}  // namespace dtrain::engine
