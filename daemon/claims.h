// What is kept free for those that have no place yet, while others are placed around it.
//
// The first gang in order that does not fit, but could, keeps concrete hosts free (backfill): the freest that will be free at a
// known time, or where nobody knows of any the freest. Others go ahead of it only on what it does not need, or when their
// max-duration ends before it could start. Who is begun again for more workers (growth.h) keeps what it had and is to have, and
// an elastic gang that could begin, and waits some seconds for more room, what it could begin with.
#pragma once

#include <optional>
#include <vector>

#include "daemon/model.h"
#include "daemon/placement.h"

namespace dtrain::daemon {

struct Claim {
  QueueOrder whose;
  RoomByHost others_may_use;   // of the hosts that it keeps; others are anybody's
  TimeMs starts_ms = 0;        // at the latest; 0: nobody knows
  bool promised = false;       // by preemption.h, which knows of those that it made before
};

// What is left of the hosts of these seats once they are taken.
RoomByHost rooms_without(const FreeHosts& free, const std::vector<Seat>& seats);

// Of who does not fit now. Nothing when the gang does not fit even empty hosts: then it holds nobody up.
std::optional<Claim> reserve(const Model& model, const Experiment& head, TimeMs now);

// Those of one placing pass.
class Claims {
 public:
  void add(Claim claim) { claims_.push_back(std::move(claim)); }
  void drop(const QueueOrder& whose);
  // What one may use who is over by `over_ms` (0: nobody knows): of claimed hosts, no more than all others leave. Null: there is
  // no claim but its own. Good until the next call.
  const RoomByHost* left_for(const QueueOrder& who, TimeMs over_ms) { return left(who, over_ms, true); }
  // The same, but for what is promised.
  const RoomByHost* left_beside_promises(const QueueOrder& who, TimeMs over_ms) { return left(who, over_ms, false); }
  // One has been placed who is over by then.
  void take(const std::vector<Seat>& seats, TimeMs over_ms);

 private:
  const RoomByHost* left(const QueueOrder& who, TimeMs over_ms, bool promised);

  std::vector<Claim> claims_;
  RoomByHost left_;   // by several
};

}  // namespace dtrain::daemon
