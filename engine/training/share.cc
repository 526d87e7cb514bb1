#include "engine/training/share.h"

#include <algorithm>
#include <numeric>

#include "engine/kernels/kernels.h"

namespace dtrain::engine {

Share::Share(const RunPlan& plan, int64_t leaves, int64_t most_leaves) : plan_(plan), leaves_(leaves) {
  const int64_t largest = (plan.batch * most_leaves + leaves - 1) / leaves + 1;
  capacity_ = plan.spec.micro_batch > 0 ? std::min<int64_t>(plan.spec.micro_batch, largest) : largest;
  model_ = make_model<float>(plan.spec.model, plan.shape, capacity_);
}

void Share::read(const Dataset& data, std::span<const uint32_t> ids) {
  if (data.kind() == Dataset::Kind::Images) {
    pixels_.resize(ids.size() * static_cast<size_t>(data.pixels()));
    labels_.resize(ids.size());
    data.images(ids, pixels_.data(), labels_.data());
  } else {
    ids_.resize(ids.size() * static_cast<size_t>(data.context()));
    labels_.resize(ids_.size());
    data.tokens(ids, ids_.data(), labels_.data());
  }
}

Samples<float> Share::samples_from(int64_t first) const {
  return {pixels_.data() + first * plan_.shape.pixels(), ids_.data() + first * plan_.shape.context,
          labels_.data() + first * plan_.rows_per_sample};
}

void Share::load(std::span<const uint32_t> batch, const std::vector<Node>& nodes) {
  batch_ = static_cast<int64_t>(batch.size());
  nodes_ = nodes;
  const Range owned{nodes.front().leaves().begin, nodes.back().leaves().end};
  const Range samples = samples_of(batch_, owned, leaves_);
  first_ = samples.begin;
  read(plan_.train, batch.subspan(static_cast<size_t>(samples.begin), static_cast<size_t>(samples.size())));
}

Outcome Share::train(const float* params, size_t node, float* gradients) {
  return train(params, nodes_[node], gradients);
}

Outcome Share::train(const float* params, const Node& node, float* gradients) {
  const Range samples = samples_of(batch_, node.leaves(), leaves_);
  if (node.level == 0) return train_leaf(params, samples, gradients);
  if (samples.size() <= capacity_) {
    std::vector<int64_t> ends;
    for (int64_t leaf = node.leaves().begin; leaf < node.leaves().end; ++leaf) {
      ends.push_back(leaf_samples(batch_, leaf, leaves_).end - samples.begin);
    }
    return model_->train(params, samples_from(samples.begin - first_),
                         {ends.data(), static_cast<int>(ends.size())}, gradients, false);
  }
  Buffer<float>& right = waiting_[node.level];
  if (right.size() == 0) right = Buffer<float>(plan_.layout.size());
  Outcome outcome = train(params, Node{node.level - 1, 2 * node.index}, gradients);
  outcome += train(params, Node{node.level - 1, 2 * node.index + 1}, right.data());
  kernels<float>().add_to(plan_.layout.size(), right.data(), gradients);
  return outcome;
}

// One after the other, in pieces that depend on the leaf alone.
Outcome Share::train_leaf(const float* params, Range samples, float* gradients) {
  if (samples.size() == 0) {
    std::fill_n(gradients, plan_.layout.size(), 0.0f);
    return {};
  }
  Outcome outcome;
  for (int64_t first = samples.begin; first < samples.end; first += capacity_) {
    const int64_t count = std::min(capacity_, samples.end - first);
    outcome += model_->train(params, samples_from(first - first_), {&count, 1}, gradients,
                             first > samples.begin);
  }
  return outcome;
}

Outcome Share::evaluate(const float* params, Range range) {
  Outcome outcome;
  std::vector<uint32_t> ids;
  for (int64_t first = range.begin; first < range.end; first += capacity_) {
    ids.resize(static_cast<size_t>(std::min(capacity_, range.end - first)));
    std::iota(ids.begin(), ids.end(), static_cast<uint32_t>(first));
    read(*plan_.test, ids);
    outcome += model_->evaluate(params, samples_from(0), static_cast<int64_t>(ids.size()));
  }
  return outcome;
}

}  // namespace dtrain::engine
