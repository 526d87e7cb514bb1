// Ports that replicas were leased, kept from strangers between Prepare and Start.
#pragma once

#include <vector>

#include "schema/result.h"

namespace dtrain::runner {

// HeldPorts keeps a launch's ports bound, without listening, until release().
// Owner: HeldLaunch. Thread: loop. Never: listens or accepts.
class HeldPorts {
 public:
  HeldPorts() = default;
  ~HeldPorts() { release(); }
  HeldPorts(const HeldPorts&) = delete;
  HeldPorts& operator=(const HeldPorts&) = delete;

  // AlreadyExists: a stranger has it. A port of 0 is no port and holds nothing.
  Status hold(int port);
  // Frees all of them: what the replicas bind next succeeds even without SO_REUSEADDR.
  void release();

 private:
  std::vector<int> fds_;
};

}  // namespace dtrain::runner
