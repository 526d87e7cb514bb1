#include "engine/comm/asking.h"

#include <netinet/in.h>

#include <algorithm>

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

void Asking::ask(Clock::time_point since) {
  for (int process = 0; process < anyone(); ++process) {
    Other& other = others_[static_cast<size_t>(process)];
    if (other.has_answered(since)) continue;
    if (process == self_) is_asked_by(other);
    if (process != self_) send(other, What::Question, -1);
  }
}

void Asking::is_asked_by(Other& other) {
  other.is_told = false;
  other.asks = true;
}

void Asking::has_answered(Other& other, int waits_for) {
  other.waits_for = waits_for;
  other.answered = Clock::now().time_since_epoch().count();
}

Asking::Behind Asking::behind(int process, Clock::time_point since) const {
  Behind behind;
  for (size_t steps = 0; steps < others_.size(); ++steps) {
    if (process == anyone()) {
      Behind all = anyone_behind(since);
      all.moved = std::max(all.moved, behind.moved);
      return all;
    }
    const Other& other = others_[static_cast<size_t>(process)];
    behind.moved = std::max(behind.moved, process == self_ ? moved() : time_of(other.moved));
    // Of its own threads it is another one that who asks may wait for; who is elsewhere may wait
    // for any.
    if (!other.has_answered(since) || (process == self_ && steps > 0)) {
      behind.silent = {process};
      break;
    }
    process = other.waits_for;
  }
  return behind;
}

Asking::Behind Asking::anyone_behind(Clock::time_point since) const {
  Behind behind;
  for (int process = 0; process < anyone(); ++process) {
    const Other& other = others_[static_cast<size_t>(process)];
    behind.moved = std::max(behind.moved, time_of(other.moved));
    if (process != self_ && !other.has_answered(since)) behind.silent.push_back(process);
  }
  return behind;
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
    // Another thread of this process may know whom for.
    const bool tells =
        process == self_ ? other.asks && !other.is_told.exchange(true) : other.asks.exchange(false);
    if (!tells) continue;
    send(other, What::Answer, process);
    const bool is_self = &other == &others_[static_cast<size_t>(self_)];
    if (is_self && process != self_) has_answered(other, process);
  }
}

// What is lost is asked for again.
void Asking::send(const Other& to, What what, int waits_for) const {
  if (!fd_ || to.size == 0) return;
  // Another thread may have moved something since.
  const auto still = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - moved()).count();
  const Datagram datagram{key_, what, static_cast<uint32_t>(self_), static_cast<uint32_t>(waits_for),
                          static_cast<uint32_t>(std::clamp<int64_t>(still, 0, UINT32_MAX))};
  ::sendto(fd_.get(), &datagram, sizeof(datagram), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&to.address), to.size);
}

void Asking::hear() {
  Datagram datagram;
  ssize_t got = 0;
  while (fd_ && (got = ::recv(fd_.get(), &datagram, sizeof(datagram), 0)) >= 0) {
    if (got != sizeof(datagram) || datagram.key != key_ || datagram.from >= others_.size()) continue;
    Other& from = others_[datagram.from];
    if (datagram.what == What::Question) is_asked_by(from);
    if (datagram.what != What::Answer || datagram.waits_for > others_.size()) continue;
    from.moved =
        (Clock::now() - std::chrono::milliseconds(datagram.still_ms)).time_since_epoch().count();
    if (datagram.waits_for != datagram.from)
      has_answered(from, static_cast<int>(datagram.waits_for));
  }
}

}  // namespace dtrain::engine
