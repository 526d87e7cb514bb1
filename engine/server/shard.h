// The elements that one server holds, and how gradients change them. Knows no connections.
#pragma once

#include <memory>
#include <vector>

#include "engine/optimizer.h"
#include "engine/server/shard_state.h"
#include "engine/server/step_tree.h"

namespace dtrain::engine::server {

struct Rates {
  double learning_rate = 0;
  double gradient_scale = 1;
};

// Gradients that are applied one by one, as they come. Owner: the server. Thread: its loop.
class Shard {
 public:
  // `range` is what it holds of the layout that the kernel knows.
  Shard(std::unique_ptr<ShardState> state, const OptimizerKernel& kernel, Range range);

  ShardState& state() { return *state_; }
  const ShardState& state() const { return *state_; }
  Range range() const { return range_; }
  Range in_layout(int64_t block) const;
  size_t bytes() const { return static_cast<size_t>(range_.size()) * sizeof(float); }

  // The first block that a writer's push has not changed yet; blocks() if it has changed all.
  int64_t next_block(int writer, uint64_t sequence) const;
  // The last push of which all was applied.
  uint64_t last(int writer) const;
  // InvalidArgument unless a block's gradient is finite.
  Status check(int64_t block, const float* grads) const;
  // Blocks in order, from next_block().
  void apply(int writer, uint64_t sequence, int64_t block, const float* grads,
             const Rates& rates);

 private:
  std::unique_ptr<ShardState> state_;
  const OptimizerKernel& kernel_;
  Range range_;
};

// Gradients that are summed over all workers, then applied once a step.
// Owner: the server. Thread: its loop.
class StepSum {
 public:
  StepSum(Shard& shard, int leaves, int workers, int backup);

  // Steps that were applied whole; the one being summed is the next.
  uint64_t steps() const;
  bool summed() const { return summed_; }
  // How many workers' sums a step needs.
  int needed() const { return static_cast<int>(workers_.size()) - backup_; }
  bool has(int worker) const;

  // Where a node of a worker's gradients goes. InvalidArgument unless the tree has that node and no
  // other of this worker overlaps it. A node of another step than the last forgets those before it.
  Result<float*> node(int worker, uint64_t sequence, int begin, int end);
  // All nodes of the worker are there. Who `needs_first` is not summed without worker 0,
  // unless that lets go of the step.
  void complete(int worker, const ShardState::Learned& learned, double learning_rate, bool needs_first);
  void let_go() { let_go_ = steps() + 1; }
  // What a worker has sent of this step is void, unless it was summed.
  void forget(int worker);
  void forget_all();

  // Once enough workers' sums are there: false if they aren't. An error if sums are not finite or
  // two workers sent the same leaves; then nothing changes.
  Result<bool> sum();
  uint64_t samples() const { return learned_.rows; }
  const std::vector<double>& squares() const { return squares_; }  // of blocks
  // The sum, divided by the number of samples unless the scale is given. The next step begins.
  void apply(double gradient_scale);

 private:
  struct Node {
    int begin = 0, end = 0;
    std::vector<float> values;
  };
  struct Worker {
    uint64_t sequence = 0;
    size_t nodes_used = 0;
    bool complete = false, needs_first = false;
    ShardState::Learned learned;
    double learning_rate = 0;
    std::vector<Node> nodes;  // more than used: memory for the next step
  };

  Shard& shard_;
  int writer_;  // of the sum, beside the workers
  int backup_;
  StepTree tree_;
  std::vector<Worker> workers_;
  std::vector<float> sum_;
  std::vector<double> squares_;
  ShardState::Learned learned_;
  double learning_rate_ = 0;
  bool summed_ = false;
  uint64_t let_go_ = 0;
};

}  // namespace dtrain::engine::server
