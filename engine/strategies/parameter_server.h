// Parameters are kept by servers, which update them; each worker has a copy of its own, as new as the
// mode asks. Threads of a worker sum their gradients before they are pushed. In sync each worker has its share
// of each batch. Else a batch has as many parts as there are workers, and servers deal all parts of all batches out
// in order, to whoever has pushed: a fast worker makes more of them, and what a slow or lost one leaves is made by
// the others.
#pragma once

#include <memory>
#include <vector>

#include "engine/buffer.h"
#include "engine/comm/meeting.h"
#include "engine/comm/tree.h"
#include "engine/comm/gang.h"
#include "engine/comm/team.h"
#include "engine/server/client.h"
#include "engine/strategies/updater.h"
#include "engine/training/run_plan.h"

namespace dtrain::engine {

class ParameterServer : public Updater {
 public:
  // Joins the servers. `plan` outlives it.
  static Result<std::unique_ptr<ParameterServer>> open(const RunPlan& plan);

  int first() const override { return plan_.place.index * plan_.threads; }
  int64_t leaves() const override { return leaves_; }
  std::vector<Node> nodes(int me) const override { return largest_nodes(owned_leaves(in_world(me), world_, leaves_)); }
  ArenaSizes sizes() const override;
  const float* parameters(int) const override { return team_->params().data(); }
  float* gradients(int me, size_t node) override {
    return team_->gradients(local(me), static_cast<int>(node)).data();
  }
  // The master tests alone: the others are at other steps.
  Range evaluated(int me, int64_t samples) const override;

  Range dealt(int me, int64_t batch) const override;
  // At the master what all workers computed since it asked last, elsewhere this worker's share.
  Result<Outcome> finish_step(int me, const Update& update, const Outcome& own) override;
  // The newest parameters; the master's last step ends with those of the others who are still heard of.
  Result<Outcome> settle(int me, int64_t step) override;
  // In sync a worker that was not waited for goes on where the others are, else each at what it is dealt.
  int64_t steps_seen(int me, int64_t steps) const override;
  // Of all workers: each push is one, but for sync.
  int64_t updates(int64_t steps) const override;
  Result<Outcome> add_up(int me, int64_t step, const Outcome& own) override;
  Result<int64_t> agree(int me, int64_t step) override;

  std::span<float> params() override { return team_->params(); }
  std::span<float> state(int index) override { return team_->state(index); }
  Status collect(int me, int64_t step) override;
  Status distribute(int me, int64_t step, int64_t updates) override;
  Status wait_for_master(int me, int64_t step) override;
  Status finish(int me) override;

  Error fail(Error error) override { return team_->fail(std::move(error)); }

 private:
  ParameterServer(const RunPlan& plan, std::unique_ptr<Gang> gang, std::unique_ptr<Team> team,
                  std::unique_ptr<ServerClient> client);

  Deadline deadline() const { return Deadline::after(plan_.spec.deadline_seconds); }
  int local(int me) const { return me - first(); }
  int64_t workers() const { return static_cast<int64_t>(plan_.place.workers.size()); }
  int in_world(int me) const { return is_sync() ? me : local(me); }
  bool talks(int me) const { return me == first(); }
  bool is_sync() const { return plan_.spec.strategy.mode == ServerMode::Sync; }
  // All threads of this worker.
  Status meet_threads(int me, int64_t step);
  int64_t steps_pushed() const;
  int64_t part() const;
  int64_t steps_of_parts() const;
  Outcome news();
  void sum_threads();
  Status push(const Update& update, const Outcome& outcome);
  Status push_gradient(const Update& update, const Outcome& outcome);

  const RunPlan& plan_;
  const int world_;  // participants that share what is cut into leaves: in sync all, else this worker's
  const int64_t leaves_;
  const std::vector<Node> worker_nodes_;
  std::unique_ptr<Gang> gang_;  // of this process alone
  std::unique_ptr<Team> team_;
  Meeting meeting_;
  std::unique_ptr<ServerClient> client_;
  std::vector<TreeSum> sums_;                          // of each node of the worker, over its threads'
  std::vector<std::vector<const float*>> sum_sources_;
  std::vector<float*> sum_results_;
  Buffer<float> gathered_;     // apply-every: parts since the last push
  std::vector<double> squares_;  // of a push that may be clipped
  Outcome gathered_outcome_;
  int gathered_parts_ = 0;
  Outcome told_;  // the master: of all workers
};

}  // namespace dtrain::engine
