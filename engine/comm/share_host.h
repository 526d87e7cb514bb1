// Which processes that have met share a host, so that they can share memory. The first process of
// each identity listens at an abstract Unix address; the others there connect and are passed a
// page. Whoever cannot (another container, a policy) counts as a host of its own. Then everyone
// tells everyone. Part of the rendezvous; one thread.
#pragma once

#include <memory>
#include <vector>

#include "engine/comm/gang.h"
#include "engine/comm/hello.h"

namespace dtrain::engine {

class HostSharing {
 public:
  HostSharing(uint64_t key, uint64_t nonce) : key_(key), nonce_(nonce) {}
  // Before the hello: the nonce for it, 0 if there can be no such address.
  uint64_t listen();
  // Fills in `host` and `local` of all peers.
  Status decide(const std::vector<Hello>& hellos, int self,
                std::vector<std::unique_ptr<Peer>>& peers, Deadline deadline);

 private:
  // The first process of the identity of `process`.
  static size_t first_of(const std::vector<Hello>& hellos, size_t process);
  Status serve(const std::vector<Hello>& hellos, size_t self,
               std::vector<std::unique_ptr<Peer>>& peers, Deadline deadline);
  Result<bool> join(const Hello& first, size_t self, Peer& peer, Deadline deadline);

  const uint64_t key_, nonce_;
  Listener listener_;
};

}  // namespace dtrain::engine
