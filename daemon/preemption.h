// Who gives way: what runs and may lose its place (Spec::preemptible) loses it to one that waits and has a higher priority, is
// stopped in order, and goes on when there is room again, at no restart of its limit.
//
// Nobody does where it would not do, or where there is room enough once those have ended that end anyway, others that give way
// among them. Else those of the lowest priority first and of these the newest, and no more than it takes. What one is to have
// by that is kept for it from those behind it; to whom others give way is stored. Nobody else does for it for a while: it may have
// its place and lose it again at once, for its start fails.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/claims.h"
#include "daemon/model.h"
#include "daemon/placement.h"

namespace dtrain::daemon {

inline constexpr TimeMs kGiveWayAgainMs = 10'000;         // after they did
inline constexpr TimeMs kGiveWayToBegunMs = 60'000;       // after it has got its place

// It has a place, and may lose it: model.preemptible.
bool may_give_way(const Experiment& experiment);
// It lost its place to another (Experiment::gave_way_to), and still has some of it: model.giving_way.
bool is_giving_way(const Experiment& experiment);
// It has its outcome, is being suspended or is between attempts, and still has some of its place: model.ending.
bool is_ending(const Experiment& experiment);
// Somebody who waits is about to have what another gives up for it.
bool is_room_promised(const Model& model);

// Who does not fit.
struct Asking {
  QueueOrder order;
  const Spec& spec;
  Choice choice;        // with what is kept from it, but for what is promised (Claim::promised)
  double stretch = 1;   // as fit() takes it
};
struct Way {
  std::vector<ExperimentId> who;   // give way, by their numbers; never none
  std::vector<Seat> seats;         // that it would have then
};
// `free` is as it was when this returns.
std::optional<Way> way_for(const Model& model, FreeHosts& free, const Asking& asking);

// For one that would be submitted now; of a set, for its first member.
std::vector<ExperimentId> who_would_give_way(const Model& model, const Spec& spec, const std::string& host, TimeMs now);

// "gives way to 7 (priority 80)" of one that still has some of its place, else "gave way to it".
std::string gave_way_text(const Model& model, const Experiment& experiment);
// "4.2 and 5 give way to it"
std::string give_way_text(const std::vector<ExperimentId>& who);

// Of one placing pass: asked in the order of the queue of each that does not fit. Looks at a bounded number of others.
class Preemption {
 public:
  Preemption(Model& model, TimeMs now);
  // Whether it could be of any use to ask.
  bool concerns(const Experiment& experiment) const;
  // What is kept for it: where others end anyway, or are to give way now (found).
  std::optional<Claim> ask(const Asking& asking);

  struct Found {
    ExperimentId to;
    std::vector<ExperimentId> who;
  };
  const std::vector<Found>& found() const { return found_; }

 private:
  bool may_have_others_give_way(const Asking& asking);
  bool is_full() const;
  Claim promise(const Asking& asking, std::vector<Seat> seats);

  Model& model_;
  const TimeMs now_;
  const bool is_time_;
  QueueOrder asked_before_;   // where more are to be asked for than can be at once, it is the turn of those behind this one
  size_t asked_ = 0, looked_at_ = 0;
  std::set<ExperimentId> leaving_;   // who gives way by now, and has not been told
  std::vector<Seat> promised_;       // to those ahead, once others have ended
  std::vector<Found> found_;
};

}  // namespace dtrain::daemon
