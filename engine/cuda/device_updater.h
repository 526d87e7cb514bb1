// Every GPU has all parameters and state; gradients are summed over all of them, and each updates its own:
// single, mirrored, multi-worker-mirrored and central-storage on GPUs. A participant is a thread with a GPU.
//
// While GPUs compute, their threads meet: so who does not come is named within the deadline, and before a
// GPU waits for one that never comes.
#pragma once

#include <memory>
#include <vector>

#include "engine/buffer.h"
#include "engine/comm/exchange.h"
#include "engine/comm/gang.h"
#include "engine/comm/team.h"
#include "engine/cuda/rank.h"
#include "engine/strategies/updater.h"
#include "engine/training/run_plan.h"

namespace dtrain::engine::cuda {

class DeviceAllReduce : public Updater {
 public:
  // `plan` outlives it.
  static Result<std::unique_ptr<DeviceAllReduce>> open(const RunPlan& plan, std::unique_ptr<Gang> gang);

  Rank& rank(int me) { return *ranks_[static_cast<size_t>(me - gang_->first())]; }

  int first() const override { return gang_->first(); }
  int64_t leaves() const override { return exchange_->leaves(); }
  std::vector<Node> nodes(int me) const override { return exchange_->nodes_of(me); }
  size_t gradient_arenas(int) const override { return 1; }
  const float* parameters(int me) const override { return ranks_[static_cast<size_t>(me - first())]->params(); }
  float* gradients(int me, size_t) override { return rank(me).gradients(); }

  Range evaluated(int me, int64_t samples) const override {
    return {samples * me / gang_->world(), samples * (me + 1) / gang_->world()};
  }
  Result<Outcome> finish_step(int me, const Update& update, const Outcome& own) override;
  Result<Outcome> add_up(int me, int64_t step, const Outcome& own) override;

  // Of the master's host memory.
  std::span<float> params() override { return {params_.data(), static_cast<size_t>(params_.size())}; }
  std::span<float> state(int index) override {
    Buffer<float>& state = states_[static_cast<size_t>(index)];
    return {state.data(), static_cast<size_t>(state.size())};
  }
  Status collect(int me, int64_t step) override;
  Status distribute(int me, int64_t step) override;
  Result<int64_t> agree(int me, int64_t step) override;
  Status wait_for_master(int me, int64_t step) override;
  Status finish(int) override { return ok(); }

  Error fail(Error error) override { return team_->fail(std::move(error)); }

 private:
  DeviceAllReduce(const RunPlan& plan, std::unique_ptr<Gang> gang, std::unique_ptr<Team> team);
  Status start(int me);
  Status check_alone(int me, std::span<const double> all, size_t each) const;
  Result<Outcome> finish_step(int me, Rank& rank, const Update& update);
  Deadline deadline() const { return Deadline::after(plan_.spec.deadline_seconds); }

  const RunPlan& plan_;
  std::unique_ptr<Gang> gang_;
  std::unique_ptr<Team> team_;
  std::unique_ptr<Exchange> exchange_;  // of notes
  std::vector<std::unique_ptr<Rank>> ranks_;
  Buffer<float> params_;
  std::vector<Buffer<float>> states_;
};

}  // namespace dtrain::engine::cuda
