// What connects to a port of this machine, for tests of what listens there; and what e2e/port_server.py makes of it.
#pragma once

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "schema/fd.h"
#include "schema/sha256.h"
#include "tests/support/process.h"

namespace dtrain::tests {

// A TCP connection to 127.0.0.1. Promises: nothing waits past kPatience; a test that does has failed.
class Client {
 public:
  explicit Client(uint16_t port, const std::string& first = "") : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    write(first);
  }
  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      REQUIRE(waits_for(POLLOUT));
      const ssize_t wrote = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      REQUIRE(wrote > 0);
      bytes.remove_prefix(static_cast<size_t>(wrote));
    }
  }
  void end_input() { ::shutdown(fd_.get(), SHUT_WR); }
  // Some of what comes. Nothing: the end; or a reset, which is told apart.
  std::string read_some() {
    std::string bytes(65536, '\0');
    REQUIRE(waits_for(POLLIN));
    const ssize_t got = ::recv(fd_.get(), bytes.data(), bytes.size(), 0);
    was_reset = got < 0;
    bytes.resize(got < 0 ? 0 : static_cast<size_t>(got));
    return bytes;
  }
  std::string read_all() {
    std::string all;
    for (std::string some = read_some(); !some.empty(); some = read_some()) all += some;
    return all;
  }
  std::string read_line() {
    std::string line;
    while (line.find('\n') == std::string::npos) {
      const std::string some = read_some();
      if (some.empty()) break;
      line += some;
    }
    return line;
  }
  int fd() const { return fd_.get(); }

  bool was_reset = false;

 private:
  bool waits_for(short what) const {
    pollfd wait{fd_.get(), what, 0};
    return ::poll(&wait, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count())) == 1;
  }
  Fd fd_;
};

inline std::string made_up(size_t bytes, uint32_t seed) {
  std::string all(bytes, '\0');
  for (char& byte : all) {
    seed = seed * 1664525 + 1013904223;
    byte = static_cast<char>(seed >> 24);
  }
  return all;
}

// What it answers to "echo" and these bytes.
inline std::string echoed(const std::string& bytes) { return to_hex(sha256(bytes)) + "\n" + bytes; }

}  // namespace dtrain::tests
