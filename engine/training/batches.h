// The samples of each step, known a step early: what of them a participant reads is brought from disk while it
// computes the step before. Owner and thread: a participant.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/data/sampler.h"
#include "engine/training/run_plan.h"
#include "engine/training/share.h"

namespace dtrain::engine {

class Batches {
 public:
  // Both outlive it.
  Batches(const RunPlan& plan, const Share& share) : plan_(plan), share_(share), sampler_(plan.sampler()) {}

  // Those of `step`, all of them, until the next call.
  const std::vector<uint32_t>& of(int64_t step);

 private:
  std::vector<uint32_t> sampled(int64_t step);

  const RunPlan& plan_;
  const Share& share_;
  Sampler sampler_;
  std::vector<uint32_t> batch_, next_;
  int64_t next_step_ = -1;  // whose next_ is
};

}  // namespace dtrain::engine
