// Every participant has all parameters; gradients are summed over all of them, each updates a slice of
// the parameters, and everybody gets all slices: single, mirrored, multi-worker-mirrored. On one host
// they share the memory of parameters and optimiser state, so that there is one copy. Between hosts gradients
// travel while backward goes on. An mlp's only participant updates as it computes.
#pragma once

#include <atomic>
#include <memory>

#include "engine/comm/exchange.h"
#include "engine/comm/gang.h"
#include "engine/comm/team.h"
#include "engine/kernels/crew.h"
#include "engine/optimizer.h"
#include "engine/strategies/immediate_update.h"
#include "engine/strategies/updater.h"
#include "engine/training/run_plan.h"

namespace dtrain::engine {

class AllReduce : public Updater {
 public:
  // `plan` outlives it.
  static Result<std::unique_ptr<AllReduce>> open(const RunPlan& plan, std::unique_ptr<Gang> gang);

  int first() const override { return gang_->first(); }
  int64_t leaves() const override { return exchange_->leaves(); }
  std::vector<Node> nodes(int me) const override { return exchange_->nodes_of(me); }
  ArenaSizes sizes() const override;
  Seat seat(int) override { return {.crew = crew_.get(), .taker = at_once_.get()}; }
  const float* parameters(int) const override { return team_->params().data(); }
  float* gradients(int me, size_t node) override {
    return team_->gradients(me, static_cast<int>(node)).data();
  }

  Range evaluated(int me, int64_t samples) const override {
    return {samples * me / gang_->world(), samples * (me + 1) / gang_->world()};
  }
  void begin_step(int me, const Update& update, int64_t samples) override;
  void gradients_ready(int me, int64_t step, int64_t offset) override { exchange_->ready(me, step, offset); }
  bool tells_all() const override { return true; }
  Result<Outcome> finish_step(int me, const Update& update, const Outcome& own) override;
  Result<Outcome> add_up(int me, int64_t step, const Outcome& own) override;

  std::span<float> params() override { return team_->params(); }
  std::span<float> state(int index) override { return team_->state(index); }
  int64_t updates(int64_t steps) const override { return steps + ahead_; }
  Status collect(int me, int64_t step) override;
  Status distribute(int me, int64_t step, int64_t updates) override;
  Result<int64_t> agree(int me, int64_t step) override;
  Status wait_for_master(int me, int64_t step) override;
  Status finish(int) override { return ok(); }

  Error fail(Error error) override { return team_->fail(std::move(error)); }

 private:
  AllReduce(const RunPlan& plan, std::unique_ptr<Gang> gang, std::unique_ptr<Team> team);

  Deadline deadline() const { return Deadline::after(plan_.spec.deadline_seconds); }
  template <class Part>
  void by_parts(int me, const Part& part);
  Result<double> gradient_scale(int me, int64_t step, double rows);

  const RunPlan& plan_;
  const OptimizerKernel optimizer_;
  std::unique_ptr<Gang> gang_;
  std::unique_ptr<Team> team_;
  Meeting meeting_;
  std::unique_ptr<Exchange> exchange_;
  const std::unique_ptr<Crew> crew_;  // of the only participant, or nothing
  std::unique_ptr<ImmediateUpdate> at_once_;
  // Updates that what training started from had seen more than steps. Each participant is told the same.
  std::atomic<int64_t> ahead_ = 0;
};

}  // namespace dtrain::engine
