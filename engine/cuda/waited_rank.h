// A Rank together with what to ask while it is waited for and how to end, as the Shares on GPUs take it; and what is
// the same in making any of them.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "engine/cuda/device_model.h"
#include "engine/cuda/kernels.h"
#include "engine/cuda/rank.h"
#include "engine/training/share.h"

namespace dtrain::engine::cuda {

// For a wait in `step` that is `doing` something: an error ends it.
using Watch = std::function<std::function<Status()>(int64_t step, const char* doing)>;

struct WaitedRank {
  Rank& rank;
  Watch watch;
  // Tells the others why this one ends, and gives up what is on its way to them: memory that it works in can't be
  // freed before. Returns the first error of all.
  std::function<Error(const Error&)> give_up;
};

// Rank::pace() after each layer of a model, until that fails: what is enqueued then comes to nothing.
class Pacer {
 public:
  Pacer(Rank& rank, const Watch& watch) : rank_(rank), watch_(watch) {}

  void layer_is_enqueued(int64_t step, const char* doing) {
    if (status_.ok()) status_ = rank_.pace(watch_(step, doing));
  }
  const Status& status() const { return status_; }

 private:
  Rank& rank_;
  const Watch& watch_;
  Status status_ = ok();
};

// A Share whose error is everybody's; and so is that its device lacks memory to work in.
class WaitedShare : public Share {
 public:
  WaitedShare(WaitedRank rank, std::unique_ptr<Share> share) : rank_(std::move(rank)), share_(std::move(share)) {}

  Range reads(int64_t batch) const override { return share_->reads(batch); }
  Result<Outcome> train(const Batch& batch, int64_t step) override {
    return told(step, [&] { return share_->train(batch, step); });
  }
  Result<Outcome> evaluate(Range range, int64_t step) override {
    return told(step, [&] { return share_->evaluate(range, step); });
  }

 private:
  template <class Compute>
  Result<Outcome> told(int64_t step, const Compute& compute) const {
    rank_.rank.device().watch([this, step] { return rank_.watch(step, "plan what to compute"); });
    try {
      Result<Outcome> outcome = compute();
      if (!outcome.ok()) return rank_.give_up(outcome.error());
      return outcome;
    } catch (const std::bad_alloc&) {
      return rank_.give_up(lacks_memory(rank_.rank.device().name(), "what a step works in", "a smaller micro-batch"));
    }
  }

  const WaitedRank rank_;
  const std::unique_ptr<Share> share_;
};

// Computes, of samples that are zeros, what steps and evaluations will: so plans are made, kernels loaded and memory grown
// before other GPUs wait for this one. Else the stages of a pipeline do that one after the other, within the deadline of
// those at its ends, and candidates are timed beside sums that wait. What comes of it nobody reads.
template <class T>
class Rehearsal {
 public:
  // `samples`: as many as the model takes.
  Rehearsal(Rank& rank, DeviceModel<T>& model, const Samples<T>& samples) : rank_(rank), model_(model), samples_(samples) {}
  ~Rehearsal() { buffer_bytes_made() = bytes_before_; }  // what grew is no activations
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;

  void forward(int64_t count) { model_.forward(rank_.weights<T>(), samples_, {&count, 1}); }
  void train(int64_t count, bool add) {
    forward(count);
    model_.backward(rank_.weights<T>(), samples_, {&count, 1}, rank_.gradients(), add);
  }

 private:
  Rank& rank_;
  DeviceModel<T>& model_;
  const Samples<T> samples_;
  const int64_t bytes_before_ = buffer_bytes_made();
};

// Sizes of batches: of an epoch's first and, where training comes to it, its last.
inline std::set<int64_t> batch_sizes(const RunPlan& plan) {
  const Sampler sampler(plan.sampler());
  return {sampler.batch_size(0), sampler.batch_size(std::clamp<int64_t>(plan.steps, 1, plan.steps_per_epoch) - 1)};
}
// How many samples are in the pieces of at most so many that they are computed in.
inline std::vector<int64_t> piece_sizes(int64_t samples, int64_t most) {
  std::vector<int64_t> sizes;
  if (samples >= most) sizes.push_back(most);
  if (samples % most > 0) sizes.push_back(samples % most);
  return sizes;
}

// InvalidArgument: a model that GPUs can't take. ResourceExhausted: not enough memory.
template <class Make>
Result<std::unique_ptr<Share>> make_on_device(const RunPlan& plan, const WaitedRank& waited, Make make) {
  Rank& rank = waited.rank;
  rank.device().use();
  TRY(check_on_device(plan.spec.model, plan.data.shape));
  try {
    return std::unique_ptr<Share>(new WaitedShare(waited, make()));
  } catch (const std::bad_alloc&) {
    return lacks_memory(rank.device().name(), "the activations of its part of a batch",
                        plan.spec.strategy.kind == Strategy::Pipeline
                            ? "more micro-batches: below pipeline"
                            : "a smaller micro-batch: the batch is then computed in pieces");
  }
}

}  // namespace dtrain::engine::cuda
