#include "engine/server/shard.h"

#include <algorithm>
#include <cmath>

namespace dtrain::engine::server {
namespace {

Error not_finite(Range range) {
  return {Code::InvalidArgument,
          fmt::format("the gradient of elements {} to {} is not finite", range.begin, range.end),
          "a smaller learning rate, or clip"};
}

}  // namespace

Shard::Shard(std::unique_ptr<ShardState> state, const OptimizerKernel& kernel, Range range)
    : state_(std::move(state)), kernel_(kernel), range_(range) {}

int64_t Shard::next_block(int writer, uint64_t sequence) const {
  const ShardState::Progress progress = state_->progress(writer);
  if (progress.sequence > sequence) return state_->blocks();
  return progress.sequence == sequence ? static_cast<int64_t>(progress.next_block) : 0;
}

uint64_t Shard::last(int writer) const {
  const ShardState::Progress progress = state_->progress(writer);
  const bool whole = static_cast<int64_t>(progress.next_block) == state_->blocks();
  return progress.sequence == 0 || whole ? progress.sequence : progress.sequence - 1;
}

Range Shard::in_layout(int64_t block) const {
  const Range local = state_->block(block);
  return {range_.begin + local.begin, range_.begin + local.end};
}

Status Shard::check(int64_t block, const float* grads) const {
  const Range range = in_layout(block);
  double squares = 0;
  block_squares(range, grads, &squares);
  if (!std::isfinite(squares)) return not_finite(range);
  return ok();
}

void Shard::apply(int writer, uint64_t sequence, int64_t block, const float* grads,
                  const Rates& rates) {
  const OptimizerStep step{.learning_rate = rates.learning_rate,
                           .gradient_scale = rates.gradient_scale,
                           .step = static_cast<int64_t>(state_->updates(block)) + 1};
  const auto at = [&](int arena) {
    return arena <= state_->shape().states ? state_->arena(arena) + state_->block(block).begin
                                           : nullptr;
  };
  state_->begin_change(block);
  kernel_.update(in_layout(block), step, at(0), grads, at(1), at(2));
  state_->commit_change(writer, sequence);
}

StepSum::StepSum(Shard& shard, int leaves, int workers, int backup)
    : shard_(shard),
      writer_(workers),
      backup_(backup),
      tree_(leaves),
      workers_(static_cast<size_t>(workers)) {}

uint64_t StepSum::steps() const { return shard_.last(writer_); }

bool StepSum::has(int worker) const {
  const Worker& of = workers_[static_cast<size_t>(worker)];
  return of.complete && of.sequence == steps() + 1;
}

Result<float*> StepSum::node(int worker, uint64_t sequence, int begin, int end) {
  if (!tree_.has_node(begin, end)) {
    return Error{Code::InvalidArgument,
                 fmt::format("leaves {} to {} are no node of the tree", begin, end), ""};
  }
  Worker& of = workers_[static_cast<size_t>(worker)];
  if (of.sequence != sequence || of.complete) forget(worker);
  of.sequence = sequence;
  for (size_t i = 0; i < of.nodes_used; ++i) {
    if (begin < of.nodes[i].end && of.nodes[i].begin < end) {
      return Error{Code::InvalidArgument, fmt::format("leaves {} to {} twice", begin, end), ""};
    }
  }
  if (of.nodes_used == of.nodes.size()) of.nodes.emplace_back();
  Node& node = of.nodes[of.nodes_used++];
  node.begin = begin;
  node.end = end;
  node.values.resize(static_cast<size_t>(shard_.range().size()));
  return node.values.data();
}

void StepSum::complete(int worker, const ShardState::Learned& learned, double learning_rate, bool needs_first) {
  Worker& of = workers_[static_cast<size_t>(worker)];
  of.complete = true;
  of.needs_first = needs_first;
  of.learned = learned;
  of.learning_rate = learning_rate;
}

void StepSum::forget(int worker) {
  Worker& of = workers_[static_cast<size_t>(worker)];
  of.nodes_used = 0;
  of.complete = false;
}

void StepSum::forget_all() {
  for (int worker = 0; worker < static_cast<int>(workers_.size()); ++worker) forget(worker);
  summed_ = false;
}

Result<bool> StepSum::sum() {
  if (summed_) return true;
  const auto count = static_cast<int>(workers_.size());
  int have = 0;
  bool needs_first = false;
  for (int worker = 0; worker < count; ++worker) {
    if (!has(worker)) continue;
    ++have;
    needs_first |= workers_[static_cast<size_t>(worker)].needs_first;
  }
  if (have < needed() || (needs_first && !has(0) && let_go_ != steps() + 1)) return false;

  tree_.clear();
  learned_ = {};
  bool first = true;
  std::vector<std::pair<int, int>> taken;
  for (int worker = 0; worker < count; ++worker) {
    if (!has(worker)) continue;
    const Worker& of = workers_[static_cast<size_t>(worker)];
    if (first) learning_rate_ = of.learning_rate;
    first = false;
    learned_.loss += of.learned.loss;
    learned_.rows += of.learned.rows;
    for (size_t i = 0; i < of.nodes_used; ++i) {
      const Node& node = of.nodes[i];
      for (const auto& [begin, end] : taken) {
        if (node.begin < end && begin < node.end) {
          return Error{Code::InvalidArgument,
                       fmt::format("worker {} and another both sent leaves {} to {}", worker,
                                   node.begin, node.end),
                       ""};
        }
      }
      taken.emplace_back(node.begin, node.end);
      tree_.set(node.begin, node.end, node.values.data());
    }
  }
  const ShardState& state = shard_.state();
  sum_.resize(static_cast<size_t>(shard_.range().size()));
  squares_.resize(static_cast<size_t>(state.blocks()));
  for (int64_t block = 0; block < state.blocks(); ++block) {
    const Range local = state.block(block);
    const float* values = tree_.sum(local.begin, local.size());
    if (values == nullptr) return Error{Code::InvalidArgument, "a step without gradients", ""};
    std::copy_n(values, local.size(), sum_.data() + local.begin);
    double& squares = squares_[static_cast<size_t>(block)];
    block_squares(local, sum_.data() + local.begin, &squares);
    if (!std::isfinite(squares)) return not_finite(shard_.in_layout(block));
  }
  summed_ = true;
  return true;
}

void StepSum::apply(double gradient_scale) {
  INVARIANT(summed_, "what is applied was summed");
  const Rates rates{
      .learning_rate = learning_rate_,
      .gradient_scale = gradient_scale != 0
                            ? gradient_scale
                            : 1 / static_cast<double>(std::max<uint64_t>(1, samples()))};
  const uint64_t step = steps() + 1;
  shard_.state().set_applied({.step = step, .gradient_scale = gradient_scale, .samples = samples()});
  for (int64_t block = shard_.next_block(writer_, step); block < shard_.state().blocks(); ++block) {
    shard_.apply(writer_, step, block, sum_.data() + shard_.state().block(block).begin, rates);
  }
  shard_.state().add_learned(learned_);
  summed_ = false;
}

}  // namespace dtrain::engine::server
