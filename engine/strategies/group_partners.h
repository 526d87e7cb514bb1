// The slices of a model's layers as a group of participants. Owner and thread: one of them.
#pragma once

#include <memory>

#include "engine/comm/group.h"
#include "engine/models/model_part.h"

namespace dtrain::engine {

class GroupPartners : public Partners<float> {
 public:
  GroupPartners(std::unique_ptr<Group> group, double deadline_seconds)
      : group_(std::move(group)), deadline_seconds_(deadline_seconds) {}

  // What the sums that follow are part of.
  void begin(int64_t step) { moment_.step = step; }
  // Of all that has been asked so far; after an error nothing is asked any more.
  const Status& status() const { return status_; }

  void add_up(float* values, int64_t count) override;
  void gather(const float* mine, float* all, int64_t count) override;

 private:
  Deadline deadline() const { return Deadline::after(deadline_seconds_); }

  std::unique_ptr<Group> group_;
  const double deadline_seconds_;
  Moment moment_{0, "sum over slices"};
  Status status_ = ok();
};

}  // namespace dtrain::engine
