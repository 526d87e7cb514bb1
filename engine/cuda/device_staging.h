// GPUs whose parameters and state are kept on CPUs: by servers (parameter-server), or by the host
// (central-storage). Each GPU's gradients go to host memory, where an Updater of the CPU does the rest, and
// the new parameters come back. The GPU has no state of the optimiser.
#pragma once

#include <memory>
#include <vector>

#include "engine/cuda/memory.h"
#include "engine/cuda/rank.h"
#include "engine/strategies/updater.h"
#include "engine/training/run_plan.h"

namespace dtrain::engine::cuda {

class DeviceStaging : public Updater {
 public:
  // `plan` outlives it.
  static Result<std::unique_ptr<DeviceStaging>> open(const RunPlan& plan, std::unique_ptr<Updater> keeper);

  Rank& rank(int me) { return *ranks_[local(me)]; }

  int first() const override { return keeper_->first(); }
  int64_t leaves() const override { return keeper_->leaves(); }
  std::vector<Node> nodes(int me) const override { return keeper_->nodes(me); }
  ArenaSizes sizes() const override;
  const float* parameters(int me) const override { return ranks_[local(me)]->params(); }
  float* gradients(int me, size_t) override { return rank(me).gradients(); }

  Range dealt(int me, int64_t batch) const override { return keeper_->dealt(me, batch); }
  Result<Outcome> finish_step(int me, const Update& update, const Outcome& own) override;
  Result<Outcome> settle(int me, int64_t step) override;
  int64_t steps_seen(int me, int64_t steps) const override { return keeper_->steps_seen(me, steps); }
  int64_t updates(int64_t steps) const override { return keeper_->updates(steps); }
  Range evaluated(int me, int64_t samples) const override { return keeper_->evaluated(me, samples); }
  Result<Outcome> add_up(int me, int64_t step, const Outcome& own) override { return keeper_->add_up(me, step, own); }

  std::span<float> params() override { return keeper_->params(); }
  std::span<float> state(int index) override { return keeper_->state(index); }
  Status collect(int me, int64_t step) override { return keeper_->collect(me, step); }
  Status distribute(int me, int64_t step, int64_t updates) override {
    return keeper_->distribute(me, step, updates);
  }
  Result<int64_t> agree(int me, int64_t step) override;
  Status wait_for_master(int me, int64_t step) override { return keeper_->wait_for_master(me, step); }
  Status finish(int me) override { return keeper_->finish(me); }

  Error fail(Error error) override { return keeper_->fail(std::move(error)); }

 private:
  DeviceStaging(const RunPlan& plan, std::unique_ptr<Updater> keeper);
  Status start(int me);
  // The keeper's parameters, which are new.
  void fetch(int me);
  size_t local(int me) const { return static_cast<size_t>(me - keeper_->first()); }

  const RunPlan& plan_;
  std::unique_ptr<Updater> keeper_;
  // Of the keeper's: what a GPU copies to and from, so that ranks end first.
  std::vector<RegisteredMemory> registered_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace dtrain::engine::cuda
