// The samples of each step, known a step early: what of them a participant reads is brought from disk while it
// computes the step before. Owner and thread: a participant.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

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

  // What is dealt of the batch of `step`, until the next call.
  std::span<const uint32_t> of(int64_t step);

 private:
  std::vector<uint32_t> sampled(int64_t step);
  std::span<const uint32_t> dealt_of(const std::vector<uint32_t>& batch) const;

  const RunPlan& plan_;
  const Share& share_;
  const Dealt dealt_;
  Sampler sampler_;
  std::vector<uint32_t> batch_, next_;
  int64_t step_ = -1, next_step_ = -1;  // whose batch_ and next_ are
};

}  // namespace dtrain::engine
