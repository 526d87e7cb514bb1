// A Channel carries floats both ways between two participants, in order: for pipelines, and for
// groups that span hosts. Through a ring in shared memory on one host, by TCP otherwise. Owner and
// thread: one of the two participants each. Promises: a wait ends by its deadline, which begins
// anew whenever something moves; an error names the other one and ends the whole team.
#pragma once

#include <span>

#include "engine/comm/team.h"

namespace dtrain::engine {

class Channel {
 public:
  // Both ends open it, in any order; on one host one a pair, between hosts one a pair and line.
  static Result<Channel> open(Team& team, int me, int other, Deadline deadline, int line = 0);

  // The other end receives exactly as many.
  Status send(std::span<const float> values, Deadline deadline, const Moment& moment);
  Status receive(std::span<float> values, Deadline deadline, const Moment& moment);

  int other() const { return other_; }

 private:
  Channel(Team& team, int me, int other) : team_(&team), me_(me), other_(other) {}

  Status send_ring(const float* values, uint32_t count, Deadline deadline, const Moment& moment);
  Status receive_ring(float* values, uint32_t count, Deadline deadline, const Moment& moment);
  Status move_stream(bool sending, void* data, size_t bytes, Deadline deadline,
                     const Moment& moment);
  Status check_count(uint32_t came, size_t due, const Moment& moment);
  int process() const;  // of the other one
  Status look(const Moment& moment) const;
  Status ask(Wait& wait, const Moment& moment) const;

  Team* team_;
  int me_, other_;
  Socket socket_;  // between hosts
};

}  // namespace dtrain::engine
