#include "engine/training/batch_share.h"

#include <algorithm>
#include <numeric>

#include "engine/kernels/kernels.h"

namespace dtrain::engine {

BatchShare::BatchShare(const RunPlan& plan, Updater& updater, int me)
    : plan_(plan),
      updater_(updater),
      me_(me),
      seat_(updater.seat(me)),
      nodes_(updater.nodes(me)),
      leaves_(updater.leaves()),
      params_(updater.parameters(me)),
      samples_(plan.data.shape, seat_.crew) {
  const int64_t largest = (plan.batch_at_once * leaves_of(nodes_).size() + leaves_ - 1) / leaves_ + 1;
  capacity_ = plan.spec.micro_batch > 0 ? std::min<int64_t>(plan.spec.micro_batch, largest) : largest;
  model_ = make_model<float>(plan.spec.model, plan.data.shape, capacity_, seat_.part, seat_.partners,
                             seat_.crew, seat_.taker);
}

Range BatchShare::reads(int64_t batch) const { return samples_of(batch, leaves_of(nodes_), leaves_); }

Result<Outcome> BatchShare::train(const Batch& batch, int64_t step) {
  if (seat_.partners != nullptr) seat_.partners->begin(step);
  batch_ = batch.size();
  const Range mine = reads(batch_);
  first_ = mine.begin;
  TRY(samples_.read(plan_.train, batch.part(mine).samples()));
  Outcome outcome;
  const GradientsReady ready = [&](int64_t offset) { updater_.gradients_ready(me_, step, offset); };
  for (size_t i = 0; i < nodes_.size(); ++i) {
    outcome += train(nodes_[i], updater_.gradients(me_, i), i + 1 == nodes_.size() ? ready : nullptr);
  }
  return told(outcome);
}

Outcome BatchShare::train(const Node& node, float* gradients, const GradientsReady& ready) {
  const Range samples = samples_of(batch_, node.leaves(), leaves_);
  if (node.level == 0) return train_leaf(samples, gradients, ready);
  if (samples.size() <= capacity_) {
    std::vector<int64_t> ends;
    for (int64_t leaf = node.leaves().begin; leaf < node.leaves().end; ++leaf) {
      ends.push_back(leaf_samples(batch_, leaf, leaves_).end - samples.begin);
    }
    return model_->train(params_, samples_.from(samples.begin - first_),
                         {ends.data(), static_cast<int>(ends.size()), shortest()}, gradients, false, ready);
  }
  Buffer<float>& right = waiting_[node.level];
  if (right.size() == 0) right = Buffer<float>(plan_.layout.size());
  Outcome outcome = train(Node{node.level - 1, 2 * node.index}, gradients, nullptr);
  outcome += train(Node{node.level - 1, 2 * node.index + 1}, right.data(), nullptr);
  kernels<float>().add_to(plan_.layout.size(), right.data(), gradients);
  return outcome;
}

// As everyone's: of what all have in common.
int64_t BatchShare::shortest() const {
  const int64_t leaf = batch_ / leaves_, piece = plan_.spec.micro_batch;
  return piece > 0 ? std::min(leaf, piece) : leaf;
}

// One after the other, in pieces that depend on the leaf alone.
Outcome BatchShare::train_leaf(Range samples, float* gradients, const GradientsReady& ready) {
  if (samples.size() == 0) {
    std::fill_n(gradients, plan_.layout.size(), 0.0f);
    return {};
  }
  Outcome outcome;
  for (int64_t first = samples.begin; first < samples.end; first += capacity_) {
    const int64_t count = std::min(capacity_, samples.end - first);
    const bool is_last = first + capacity_ >= samples.end;
    outcome += model_->train(params_, samples_.from(first - first_), {&count, 1, shortest()}, gradients,
                             first > samples.begin, is_last ? ready : nullptr);
  }
  return outcome;
}

Result<Outcome> BatchShare::evaluate(Range range, int64_t step) {
  if (seat_.partners != nullptr) seat_.partners->begin(step);
  Outcome outcome;
  std::vector<uint32_t> ids;
  for (int64_t first = range.begin; first < range.end; first += capacity_) {
    ids.resize(static_cast<size_t>(std::min(capacity_, range.end - first)));
    std::iota(ids.begin(), ids.end(), static_cast<uint32_t>(first));
    TRY(samples_.read(*plan_.test, ids));
    outcome += model_->evaluate(params_, samples_.from(0), static_cast<int64_t>(ids.size()));
  }
  return told(outcome);
}

Result<Outcome> BatchShare::told(const Outcome& outcome) const {
  if (seat_.partners != nullptr) TRY(seat_.partners->status());
  return seat_.part.slice == 0 ? outcome : Outcome{};
}

}  // namespace dtrain::engine
