// A Group is some participants that exchange values among themselves: those that split a layer.
// Sums are in the order of the members, ((a + b) + c) + d, the same bits for all and wherever they
// are. Owner and thread: each member has its own; all call the same in the same order. Promises: as
// a Channel.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/comm/channel.h"

namespace dtrain::engine {

class Group {
 public:
  // `members` include `me`, in the same order for all of them. In each slot (below kGroupSlots) a participant is in one
  // group. Between hosts it opens a channel for each pair, with a line for the slot.
  static Result<std::unique_ptr<Group>> open(Team& team, int me, std::vector<int> members, int slot,
                                             Deadline deadline);

  const std::vector<int>& members() const { return members_; }

  Status all_reduce(std::span<float> values, Deadline deadline, const Moment& moment);
  // `all` has members().size() * mine.size(), by member.
  Status all_gather(std::span<const float> mine, std::span<float> all, Deadline deadline,
                    const Moment& moment);

 private:
  Group(Team& team, int me, std::vector<int> members, int slot);

  // On one host, through the stages: puts mine there, meets, and takes `each` of a member's.
  Status reduce_staged(std::span<float> values, Deadline deadline, const Moment& moment);
  Status gather_staged(std::span<const float> mine, std::span<float> all, Deadline deadline,
                       const Moment& moment);
  Status put(std::span<const float> values, int set, Deadline deadline, const Moment& moment);
  Status reduce_sent(std::span<float> values, Deadline deadline, const Moment& moment);
  // With member i: the lower of the two sends first, so that they cannot wait for each other.
  Status swap(size_t i, std::span<const float> out, std::span<float> in, Deadline deadline,
              const Moment& moment);

  Team& team_;
  const int me_;
  const std::vector<int> members_;
  const int slot_;
  size_t position_ = 0;                             // of me
  int set_ = 0;                                     // of stages, that is next
  std::vector<std::unique_ptr<Channel>> channels_;  // by member; none on one host
  std::vector<float> parts_;                        // of the others, to be summed
};

}  // namespace dtrain::engine
