#include "engine/comm/share_host.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "engine/comm/pass_fd.h"

namespace dtrain::engine {
namespace {

// What a process says at the Unix address: who it is.
struct LocalHello {
  uint64_t key = 0;
  uint64_t process = 0;
};

// A local process answers at once; a stranger must not hold the rest up.
constexpr double kLocal_seconds = 1;

std::string local_address(uint64_t key, uint64_t nonce) {
  return fmt::format("unix:@dtrain-engine-{:016x}-{:016x}", key, nonce);
}

}  // namespace

uint64_t HostSharing::listen() {
  auto opened = Listener::open_unix(local_address(key_, nonce_));
  if (!opened.ok()) return 0;
  listener_ = std::move(*opened);
  return nonce_;
}

size_t HostSharing::first_of(const std::vector<Hello>& hellos, size_t process) {
  if (hellos[process].host == 0) return process;
  size_t first = 0;
  while (hellos[first].host != hellos[process].host) ++first;
  return first;
}

Status HostSharing::decide(const std::vector<Hello>& hellos, int self_index,
                           std::vector<std::unique_ptr<Peer>>& peers, Deadline deadline) {
  const auto self = static_cast<size_t>(self_index);
  std::vector<uint32_t> firsts(peers.size());
  const size_t first = first_of(hellos, self);
  firsts[self] = static_cast<uint32_t>(self);
  if (first == self) {
    TRY(serve(hellos, self, peers, deadline));
  } else {
    TRY(const bool joined, join(hellos[first], self, *peers[first], deadline));
    if (joined) firsts[self] = static_cast<uint32_t>(first);
  }
  for (size_t i = 0; i < peers.size(); ++i) {
    if (i != self) TRY(peers[i]->socket.write(&firsts[self], sizeof(uint32_t), deadline));
  }
  for (size_t i = 0; i < peers.size(); ++i) {
    if (i != self) TRY(peers[i]->socket.read(&firsts[i], sizeof(uint32_t), deadline));
    if (firsts[i] > i || firsts[firsts[i]] != firsts[i]) {
      return Error{Code::Internal, peers[i]->name + " says it is on the host of none", ""};
    }
  }
  int hosts = 0;
  for (size_t i = 0; i < peers.size(); ++i) {
    peers[i]->host = firsts[i] == i ? hosts++ : peers[firsts[i]]->host;
    if (firsts[i] != firsts[self]) peers[i]->local.close();
  }
  return ok();
}

Status HostSharing::serve(const std::vector<Hello>& hellos, size_t self,
                          std::vector<std::unique_ptr<Peer>>& peers, Deadline deadline) {
  const Fd page(::memfd_create("dtrain-engine-probe", MFD_CLOEXEC));
  if (page && ::write(page.get(), &nonce_, sizeof(nonce_)) != sizeof(nonce_)) {
    return errno_error("write to shared memory", errno);
  }
  size_t coming = 0;
  for (size_t i = self + 1; i < peers.size(); ++i) {
    if (first_of(hellos, i) != self) continue;
    uint32_t connected = 0;
    TRY(peers[i]->socket.read(&connected, sizeof(connected), deadline));
    coming += connected;
  }
  while (coming > 0) {
    TRY(Socket local, listener_.accept(deadline));
    LocalHello hello;
    if (!local.read(&hello, sizeof(hello), Deadline::after(kLocal_seconds)).ok()) continue;
    if (hello.key != key_ || hello.process <= self || hello.process >= peers.size()) continue;
    Peer& peer = *peers[hello.process];
    if (peer.local) continue;
    --coming;
    local.set_name(peer.name);
    // Without a page it hears the end of the stream, and is a host of its own.
    if (!page || !send_fd(local, page.get(), deadline).ok()) continue;
    peer.local = std::move(local);
  }
  return ok();
}

Result<bool> HostSharing::join(const Hello& first, size_t self, Peer& peer, Deadline deadline) {
  bool joined = false;
  if (first.nonce != 0) {
    auto local = Socket::try_connect(local_address(key_, first.nonce), deadline);
    const LocalHello hello{key_, self};
    if (local.ok() && local->write(&hello, sizeof(hello), deadline).ok()) {
      joined = true;
      peer.local = std::move(*local);
      peer.local.set_name(peer.name);
    }
  }
  const uint32_t connected = joined ? 1 : 0;
  TRY(peer.socket.write(&connected, sizeof(connected), deadline));
  if (!joined) return false;
  uint64_t nonce = 0;
  const auto page = receive_fd(peer.local, deadline);
  if (page.ok()) {
    // Mapped, not read: a policy may allow the one and not the other.
    const void* const mapped =
        ::mmap(nullptr, sizeof(nonce), PROT_READ, MAP_SHARED, page->get(), 0);
    if (mapped != MAP_FAILED) {
      nonce = *static_cast<const uint64_t*>(mapped);
      ::munmap(const_cast<void*>(mapped), sizeof(nonce));
    }
  }
  if (nonce == first.nonce) return true;
  peer.local.close();
  return false;
}

}  // namespace dtrain::engine
