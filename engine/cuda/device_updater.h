// Each participant has a part of the model on its GPU, with its gradients and state, and updates it: all of the
// model (single, mirrored, multi-worker-mirrored), a stage (pipeline), a slice of each layer
// (tensor) or that and a share of the batch (mesh). A participant is a thread with a GPU.
//
// While GPUs compute, their threads meet: so who does not come is named within the deadline, and before a
// GPU waits for one that never comes.
//
// The host is one step ahead of its GPU: it enqueues a step, or its forward, while the one before is computed, and then
// waits for that one's end. So a GPU has always something to do. A loss that is no number is found when the next step is
// on its way: that comes to nothing, for all end, and all save only what was settled.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "engine/buffer.h"
#include "engine/comm/channel.h"
#include "engine/comm/meeting.h"
#include "engine/comm/gang.h"
#include "engine/comm/team.h"
#include "engine/cuda/device_grid.h"
#include "engine/cuda/rank.h"
#include "engine/strategies/updater.h"
#include "engine/training/run_plan.h"

namespace dtrain::engine::cuda {

class DeviceUpdater : public Updater {
 public:
  // `plan` outlives it.
  static Result<std::unique_ptr<DeviceUpdater>> open(const RunPlan& plan, std::unique_ptr<Gang> gang);
  ~DeviceUpdater() override;

  Rank& rank(int me) { return *ranks_[static_cast<size_t>(me - gang_->first())]; }
  // To be asked while a GPU is waited for: an error when somebody failed, or did not answer in time. Nothing to ask where
  // there is but one, which takes the time that it takes.
  std::function<Status()> watch(int me, int64_t step, const char* doing);
  // Ends all with this error, or with an earlier one, which it returns; and what `me` has on its way to others.
  Error give_up(int me, const Error& why);

  int first() const override { return gang_->first(); }
  int64_t leaves() const override { return leaves_; }
  std::vector<Node> nodes(int me) const override {
    return largest_nodes(owned_leaves(grid_.data_of(me), grid_.data(), leaves_));
  }
  ArenaSizes sizes() const override;
  Seat seat(int me) override { return {.part = rank(me).part()}; }
  const float* parameters(int me) const override { return ranks_[static_cast<size_t>(me - first())]->params(); }
  float* gradients(int me, size_t) override { return rank(me).gradients(); }

  Range evaluated(int me, int64_t samples) const override {
    const int64_t data = grid_.data_of(me), all = grid_.data();
    return {samples * data / all, samples * (data + 1) / all};
  }
  Result<Outcome> finish_step(int me, const Update& update, const Outcome& own) override;
  int64_t steps_behind() const override { return 1; }
  Result<Outcome> settle(int me, int64_t step) override;
  Result<Outcome> add_up(int me, int64_t step, const Outcome& own) override;

  // Of the master's host memory.
  std::span<float> params() override { return {params_.data(), static_cast<size_t>(params_.size())}; }
  std::span<float> state(int index) override {
    Buffer<float>& state = states_[static_cast<size_t>(index)];
    return {state.data(), static_cast<size_t>(state.size())};
  }
  int64_t updates(int64_t steps) const override { return steps + ahead_; }
  Status collect(int me, int64_t step) override;
  bool keeps_collected() const override { return true; }
  Status distribute(int me, int64_t step, int64_t updates) override;
  Result<int64_t> agree(int me, int64_t step) override;
  Status wait_for_master(int me, int64_t step) override;
  Status finish(int) override { return ok(); }

  Error fail(Error error) override { return team_->fail(std::move(error)); }

 private:
  // What each thread of this process has beside its GPU.
  struct Own {
    std::vector<float> packed;  // an arena of a part
    std::vector<Channel> channels;  // the master's: to the first of each part but its own; theirs: to the master
  };

  DeviceUpdater(const RunPlan& plan, std::unique_ptr<Gang> gang, std::unique_ptr<Team> team);
  // For each of this process's participants, at once.
  void in_threads(const std::function<void(int thread)>& work);
  Status start(int me);
  Status check_alone(int me);
  Result<std::shared_ptr<Communicator>> meet(int me, const std::vector<int>& members);
  Status enqueue(int me, Rank& mine, const Update& update);
  Status look(int me, const Moment& moment, Wait& wait);
  void add_up_ends(Rank& mine);
  Deadline deadline() const { return Deadline::after(plan_.spec.deadline_seconds); }
  Own& own(int me) { return own_[static_cast<size_t>(me - first())]; }

  // Of each arena of a part: of the whole model's at the master, as the part lies on its GPU.
  std::vector<std::span<float>> whole_arenas();
  void take_out(int model, std::span<const float> whole, std::vector<float>& packed) const;
  void put_in(int model, const std::vector<float>& packed, std::span<float> whole) const;

  const RunPlan& plan_;
  std::unique_ptr<Gang> gang_;
  std::unique_ptr<Team> team_;
  Meeting meeting_;
  const DeviceGrid grid_;
  const int64_t leaves_;
  const int state_count_;
  std::vector<std::vector<Piece>> pieces_;  // by part
  std::vector<Layout> layouts_;             // by part
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<Own> own_;
  // Updates that what training started from had seen more than steps. Each participant is told the same.
  std::atomic<int64_t> ahead_ = 0;
  Buffer<float> params_;
  std::vector<Buffer<float>> states_;
};

}  // namespace dtrain::engine::cuda
