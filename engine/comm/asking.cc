#include "engine/comm/asking.h"

#include <netinet/in.h>

namespace dtrain::engine {
namespace {

// So that it is not taken for what else is keyed so.
constexpr uint64_t kMark = 0x6474726169415321;

sockaddr* as_address(sockaddr_storage& storage) { return reinterpret_cast<sockaddr*>(&storage); }

}  // namespace

Asking::Asking(int self, int processes, uint64_t key, const Listener& listener)
    : self_(self), key_(key ^ kMark), others_(static_cast<size_t>(processes)) {
  sockaddr_storage own = {};
  socklen_t size = sizeof(own);
  if (::getsockname(listener.fd(), as_address(own), &size) != 0) return;
  if (own.ss_family != AF_INET && own.ss_family != AF_INET6) return;
  Fd fd(::socket(own.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd && ::bind(fd.get(), as_address(own), size) == 0) fd_ = std::move(fd);
}

void Asking::add(int process, const Socket& connection, int port) {
  Other& other = others_[static_cast<size_t>(process)];
  socklen_t size = sizeof(other.address);
  if (::getpeername(connection.fd(), as_address(other.address), &size) != 0) return;
  const in_port_t there = htons(static_cast<uint16_t>(port));
  if (other.address.ss_family == AF_INET) {
    reinterpret_cast<sockaddr_in&>(other.address).sin_port = there;
  } else if (other.address.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(other.address).sin6_port = there;
  } else {
    return;
  }
  other.size = size;
}

void Asking::ask() {
  for (const Other& other : others_) {
    if (other.waits_for < 0) send(other, What::Question, -1);
  }
}

std::vector<int> Asking::silent_behind(int process) const {
  for (size_t steps = 0; steps < others_.size(); ++steps) {
    if (process == anyone()) return silent();
    const int next = others_[static_cast<size_t>(process)].waits_for;
    if (next < 0) return {process};
    process = next;
  }
  return {};
}

std::vector<int> Asking::silent() const {
  std::vector<int> silent;
  for (int process = 0; process < anyone(); ++process) {
    if (process != self_ && others_[static_cast<size_t>(process)].waits_for < 0) silent.push_back(process);
  }
  return silent;
}

bool Asking::is_asked() {
  hear();
  for (const Other& other : others_) {
    if (other.asks) return true;
  }
  return false;
}

void Asking::answer(int process) {
  for (Other& other : others_) {
    if (other.asks.exchange(false)) send(other, What::Answer, process);
  }
}

// What is lost is asked for again.
void Asking::send(const Other& to, What what, int waits_for) const {
  if (!fd_ || to.size == 0) return;
  const Datagram datagram{key_, what, static_cast<uint32_t>(self_), static_cast<uint32_t>(waits_for), 0};
  ::sendto(fd_.get(), &datagram, sizeof(datagram), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&to.address), to.size);
}

void Asking::hear() {
  Datagram datagram;
  ssize_t got = 0;
  while (fd_ && (got = ::recv(fd_.get(), &datagram, sizeof(datagram), 0)) >= 0) {
    if (got != sizeof(datagram) || datagram.key != key_ || datagram.from >= others_.size()) continue;
    Other& from = others_[datagram.from];
    if (datagram.what == What::Question) from.asks = true;
    if (datagram.what == What::Answer && datagram.waits_for <= others_.size()) {
      from.waits_for = static_cast<int>(datagram.waits_for);
    }
  }
}

}  // namespace dtrain::engine
