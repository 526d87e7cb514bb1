// The model is split: over stages of layers (pipeline), over slices of each layer (tensor), and copies of
// it over the batch (mesh; and the threads of each worker). Parameters lie where the whole model has them;
// a host has one copy of those that its parts hold, and each element of it is updated by one participant.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/comm/meeting.h"
#include "engine/comm/gang.h"
#include "engine/comm/team.h"
#include "engine/comm/tree.h"
#include "engine/optimizer.h"
#include "engine/strategies/grid.h"
#include "engine/strategies/updater.h"
#include "engine/training/run_plan.h"

namespace dtrain::engine {

class SplitModel : public Updater {
 public:
  // `plan` outlives it.
  static Result<std::unique_ptr<SplitModel>> open(const RunPlan& plan, std::unique_ptr<Gang> gang);

  int first() const override { return gang_->first(); }
  int64_t leaves() const override { return leaves_; }
  std::vector<Node> nodes(int me) const override { return nodes_of_row(grid_.data_of(me)); }
  ArenaSizes sizes() const override;
  Seat seat(int me) override;
  const float* parameters(int) const override { return team_->params().data(); }
  float* gradients(int me, size_t node) override {
    return team_->gradients(me, static_cast<int>(node)).data();
  }

  Range evaluated(int me, int64_t samples) const override;
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
  // What each thread of this process has.
  struct Own {
    ModelPart part;
    std::unique_ptr<GroupPartners> partners;
    std::unique_ptr<Pipe> pipe;
    std::unique_ptr<Group> ends;    // of a pipeline, which both have `partial`
    std::unique_ptr<Group> column;  // if those with the same part are on several hosts
    std::vector<Duty> duties;
    std::vector<const float*> sources;  // gradients of those with the same part, by node
    std::vector<float> packed;
    std::map<int, Channel> channels;  // by host: of the first participant of each with the master
  };

  SplitModel(const RunPlan& plan, std::unique_ptr<Gang> gang, std::unique_ptr<Team> team, Grid grid,
             int64_t leaves);
  Status connect();
  Status connect(int me, Own& own);

  bool is_pipeline() const { return plan_.spec.strategy.kind == Strategy::Pipeline; }
  std::vector<Node> nodes_of_row(int data) const {
    return largest_nodes(owned_leaves(data, grid_.data(), leaves_));
  }
  Own& own(int me) { return own_[static_cast<size_t>(me - gang_->first())]; }
  const Held& held(int me) const { return held_[static_cast<size_t>(grid_.model_of(me))]; }
  Deadline deadline() const { return Deadline::after(plan_.spec.deadline_seconds); }

  Status add_up_ends(int me, int64_t step);
  Status sum_column(int me, int64_t step);
  Result<double> gradient_scale(int me, int64_t step, double rows);
  Status meet_all(int me, int64_t step);

  // Ranges of all arenas, in messages one after the other.
  Status send_arenas(Channel& channel, Own& own, const std::vector<Range>& ranges, const Moment& moment);
  Status receive_arenas(Channel& channel, Own& own, const std::vector<Range>& ranges, const Moment& moment);
  std::vector<Range> held_on(int host) const;        // and not only elsewhere
  std::vector<Range> collected_from(int host) const;  // what the master's host lacks
  std::vector<std::span<float>> arenas() const;

  const RunPlan& plan_;
  const OptimizerKernel optimizer_;
  std::unique_ptr<Gang> gang_;
  std::unique_ptr<Team> team_;
  Meeting meeting_;
  const Grid grid_;
  const int64_t leaves_;
  std::vector<Held> held_;  // by part
  std::optional<TreeSum> sum_;
  std::vector<Own> own_;
  // Updates that what training started from had seen more than steps. Each participant is told the same.
  std::atomic<int64_t> ahead_ = 0;
};

}  // namespace dtrain::engine
