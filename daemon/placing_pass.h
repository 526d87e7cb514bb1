// One pass over the queue: who is placed where, in which order.
//
// Who is begun again for more workers (growth.h) comes first: it gives nothing up for it. Then higher priority first (0 to 100),
// then the order of submission, or of shares (fair_share.h). Who does not fit may keep hosts free from those behind it: claims.h. Or others give way to it:
// preemption.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "daemon/claims.h"
#include "daemon/fair_share.h"
#include "daemon/model.h"
#include "daemon/placement.h"
#include "daemon/preemption.h"
#include "daemon/quota.h"

namespace dtrain::daemon {

// next() gives an experiment and the seats for it; the caller launches it (which takes it out of the queue and its seats out of
// model.free) before it asks again.
class PlacingPass {
 public:
  PlacingPass(Model& model, TimeMs now) : model_(model), now_(now), turns_(model), quotas_(model), preemption_(model, now) {}
  struct Found {
    ExperimentId id;
    Placed placed;
  };
  std::optional<Found> next();
  // Those that did not fit, in queue order; mostly the first of each lane.
  const std::vector<ExperimentId>& refused() const { return refused_; }
  // Who is to give way to some of them: the caller stops these.
  const std::vector<Preemption::Found>& give_way() const { return preemption_.found(); }
  // Whether an elastic gang could begin, and waits for more room.
  bool is_settling() const { return settling_; }

 private:
  void begin();
  void go_on_behind(const QueueOrder& order, const std::string& lane);
  std::optional<Placed> try_place(const Experiment& experiment, const std::string& lane);
  bool is_promised_room(const Experiment& experiment, const std::string& lane);
  bool settles(const Experiment& experiment) const;
  void keep_for_settling(const Experiment& experiment);

  Model& model_;
  const TimeMs now_;
  bool begun_ = false;
  Turns turns_;
  Claims claims_;
  KeptQuota quotas_;
  Preemption preemption_;
  bool reserved_ = false;   // the first that does not fit, and could, has its claim
  bool settling_ = false;
  std::vector<ExperimentId> refused_;
};

}  // namespace dtrain::daemon
