// The samples of each step; and what a participant reads of the next one is brought from disk while it computes this
// one. Owner and thread: a participant.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "engine/data/sampler.h"
#include "engine/training/run_plan.h"
#include "engine/training/share.h"

namespace dtrain::engine {

class Batches {
 public:
  // Which of a batch of so many samples are the next ones: Updater::dealt().
  using Dealt = std::function<Range(int64_t batch)>;

  // Plan and share outlive it.
  Batches(const RunPlan& plan, const Share& share, Dealt dealt)
      : plan_(plan), share_(share), dealt_(std::move(dealt)), sampler_(plan.sampler()) {}

  // What is dealt of the batch of `step`.
  Batch of(int64_t step);

 private:
  Batch dealt_of(int64_t step) const;

  const RunPlan& plan_;
  const Share& share_;
  const Dealt dealt_;
  const Sampler sampler_;
  int64_t asked_step_ = -1;
};

}  // namespace dtrain::engine
