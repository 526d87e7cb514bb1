// What waits for a place, in which order, and why.
//
// Who is begun again for more workers (growth.h) comes first: it gives nothing up for it.
// Higher priority first (0 to 100), then the order of submission. A set has at most `concurrency`
// members placed at once; the others are CREATED and not in the queue. The first gang in order that
// does not fit, but could, keeps concrete hosts free (backfill): others go ahead of it only on what
// it does not need, or when their max-duration ends before it could start. It keeps the freest hosts that will be free at
// a known time, or where nobody knows of any the freest.
//
// Hosts where an experiment's starts failed are excluded for it only as long as the others that are
// here could take it. When they could not, those that failed longest ago are tried again: what was
// wrong there may have passed, and nobody is given up for it. Hosts that lack what it names by path are
// another matter: placement_fitness.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "daemon/lifecycle.h"
#include "daemon/model.h"
#include "daemon/placement.h"

namespace dtrain::daemon {

// Experiments of one lane ask for the same and may be placed on the same hosts.
std::string lane_of(const Experiment& experiment);
// Hosts that are kept for a lane in which nobody waits any more are everybody's.
void keep_for_no_one_else(Model& model);
QueueOrder order_of(const Experiment& experiment);
void enqueue(Queue& queue, const Experiment& experiment);
void leave(Queue& queue, const Experiment& experiment);
// Where it may go, and where not: unfit hosts, and the excluded ones that still count.
Choice choice_of(const Model& model, const Experiment& experiment);

// What a waiting gang keeps free: how far others may use its hosts, and when it starts at the latest
// (0: nobody knows).
struct Reservation {
  ExperimentId for_whom;
  RoomByHost others_may_use;
  TimeMs starts_ms = 0;
};

// What is left of the hosts of these seats once they are taken.
RoomByHost rooms_without(const FreeHosts& free, const std::vector<Seat>& seats);

// Nothing when the gang does not fit even empty hosts: then it holds nobody up.
std::optional<Reservation> reserve(const Model& model, const Experiment& head, TimeMs now);

// One pass over the queue. next() gives an experiment and the seats for it; the caller launches it
// (which takes it out of the queue and its seats out of model.free) before it asks again.
class PlacingPass {
 public:
  PlacingPass(Model& model, TimeMs now) : model_(model), now_(now) {}
  struct Found {
    ExperimentId id;
    Placed placed;
  };
  std::optional<Found> next();
  // Those at the head of a lane that did not fit, in queue order.
  const std::vector<ExperimentId>& refused() const { return refused_; }
  // Whether an elastic gang could begin, and waits for more room.
  bool is_settling() const { return settling_; }

 private:
  std::optional<Placed> try_place(const Experiment& experiment, const std::string& lane);
  const Queue::Prospect& prospect_of(const Experiment& experiment, const std::string& lane);

  Model& model_;
  const TimeMs now_;
  bool begun_ = false;
  std::set<std::pair<QueueOrder, std::string>> heads_;   // of the lanes that may still fit
  const RoomByHost* kept_from(const Experiment& experiment, bool over_before);
  void count_taken(const Seat& seat, bool over_before);
  std::optional<Reservation> reservation_;
  // Of who is begun again for more workers, or waits some seconds for more room: what others may use.
  std::vector<std::pair<QueueOrder, RoomByHost>> kept_for_;
  void keep_for_settling(const Experiment& experiment);
  bool settling_ = false;
  RoomByHost kept_;   // of several, what is left by all
  std::vector<ExperimentId> refused_;
};

// Why an experiment is not placed, as of now; empty when it is, or is over. Made on demand.
std::string wait_reason(const Model& model, const ExperimentId& id, TimeMs now);

}  // namespace dtrain::daemon
