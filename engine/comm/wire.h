// Moves one frame to and one from each of several other processes at once, over the connections of
// the gang. What is sent and received lies where it is used: nothing is copied on the way. Owner:
// Meeting. Thread: one of the process. Every process calls run() for every exchange, also with
// nothing to move, so that all count alike.
// Promises: ends by the deadline, which begins anew whenever something moves, with an error that names who is missing,
// lost or out of step.
#pragma once

#include <span>
#include <vector>

#include "engine/comm/team.h"

namespace dtrain::engine {

struct Transfer {
  int process = 0;
  std::vector<iovec> parts = {};
  void add(const void* data, size_t bytes) {
    if (bytes > 0) parts.push_back({const_cast<void*>(data), bytes});
  }
};

class Wire {
 public:
  explicit Wire(Team& team) : team_(team), gang_(team.gang()) {}

  // At most one transfer each way for a process; those without bytes are left out by both ends.
  Status run(Op op, std::span<const Transfer> sends, std::span<const Transfer> receives,
             Deadline deadline, const Moment& moment);

 private:
  // A frame on its way.
  struct Flow {
    int process = 0;
    bool sending = false;
    FrameHeader header;             // what is sent, or what is expected
    FrameHeader received;           // of the other end
    std::vector<iovec> parts = {};  // the header and what follows
    size_t next = 0;                // of parts
    bool done() const { return next == parts.size(); }
  };

  void prepare(Flow& flow, Op op, const Transfer& transfer, bool sending);
  Status advance(Flow& flow, const Moment& moment);
  Status send_more(Flow& flow);
  Status receive_more(Flow& flow, const Moment& moment);
  Status check(const Flow& flow, const Moment& moment);
  Status ask_who_is_missing(Wait& wait, const Moment& moment) const;
  Status look(const Moment& moment) const;

  Team& team_;
  Gang& gang_;
  uint64_t sequence_ = 0;
  std::vector<Flow> flows_;  // kept for its memory
};

}  // namespace dtrain::engine
