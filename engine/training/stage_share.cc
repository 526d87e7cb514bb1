#include "engine/training/stage_share.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "engine/kernels/kernels.h"

namespace dtrain::engine {

StageShare::StageShare(const RunPlan& plan, Updater& updater, int me)
    : plan_(plan),
      updater_(updater),
      me_(me),
      seat_(updater.seat(me)),
      nodes_(updater.nodes(me)),
      leaves_(updater.leaves()),
      held_(held()),
      params_(updater.parameters(me)),
      samples_(plan.data.shape) {
  // As many leaves a micro-batch as leave every participant as many as were asked for.
  const auto most = static_cast<uint64_t>(leaves_of(nodes_).size()) /
                    std::bit_ceil(static_cast<uint64_t>(plan.spec.strategy.micro_batches));
  const int level = static_cast<int>(std::bit_width(std::max<uint64_t>(most, 1))) - 1;
  for (size_t target = 0; target < nodes_.size(); ++target) {
    const Node& node = nodes_[target];
    const int own_level = std::min(level, node.level);
    const int64_t count = int64_t{1} << (node.level - own_level);
    for (int64_t i = 0; i < count; ++i) {
      micros_.push_back({{own_level, node.index * count + i}, target, static_cast<uint64_t>(i)});
    }
  }
  int64_t most_leaves = 1;
  for (const MicroBatch& micro : micros_) most_leaves = std::max(most_leaves, micro.node.leaves().size());
  capacity_ = (plan.batch * most_leaves + leaves_ - 1) / leaves_ + 1;
  const size_t models = std::min(micros_.size(), static_cast<size_t>(seat_.part.stages - seat_.part.stage));
  for (size_t i = 0; i < models; ++i) {
    models_.push_back(make_model<float>(plan.spec.model, plan.data.shape, capacity_, seat_.part));
  }
}

std::vector<Range> StageShare::held() const {
  const Held held = held_by(plan_.spec.model, plan_.data.shape, seat_.part);
  std::vector<Range> ranges = held.own;
  ranges.insert(ranges.end(), held.partial.begin(), held.partial.end());
  return ranges;
}

// Only what is next to a neighbour may wait for it. The order, the lower stage sending first and the upper
// one receiving first, leaves no two waiting for each other.
Result<Outcome> StageShare::train(const Batch& batch, int64_t step) {
  seat_.pipe->begin(step);
  TRY(cut(batch));
  Outcome outcome;
  const size_t count = micros_.size();
  const size_t ahead = std::min(count, static_cast<size_t>(seat_.part.stages - seat_.part.stage - 1));
  for (size_t micro = 0; micro < ahead; ++micro) {
    TRY(receive(micro));
    forward(micro, outcome);
    TRY(send(micro));
  }
  if (ahead < count) TRY(receive(ahead));
  for (size_t micro = ahead; micro < count; ++micro) {
    forward(micro, outcome);
    TRY(send(micro));
    TRY(backward(micro - ahead));
    if (micro + 1 < count) TRY(receive(micro + 1));
    TRY(give_back(micro - ahead));
  }
  for (size_t micro = count - ahead; micro < count; ++micro) {
    TRY(backward(micro));
    TRY(give_back(micro));
  }
  return outcome;
}

Range StageShare::reads(int64_t batch) const {
  return sees_samples() ? samples_of(batch, leaves_of(nodes_), leaves_) : Range{};
}

Status StageShare::cut(const Batch& batch) {
  const int64_t size = batch.size();
  const Range mine = reads(size);
  for (MicroBatch& micro : micros_) {
    const Range leaves = micro.node.leaves(), samples = samples_of(size, leaves, leaves_);
    micro.first = samples.begin - mine.begin;
    micro.shortest = size / leaves_;
    micro.ends.clear();
    for (int64_t leaf = leaves.begin; leaf < leaves.end; ++leaf) {
      micro.ends.push_back(leaf_samples(size, leaf, leaves_).end - samples.begin);
    }
  }
  if (!sees_samples()) return ok();
  return samples_.read(plan_.train, batch.part(mine).samples());
}

Status StageShare::receive(size_t at) {
  const MicroBatch& micro = micros_[at];
  if (micro.is_empty()) return ok();
  return seat_.pipe->receive_input({model(at).input(), static_cast<size_t>(model(at).flow_in(micro.leaves()))});
}

void StageShare::forward(size_t at, Outcome& outcome) {
  const MicroBatch& micro = micros_[at];
  if (!micro.is_empty()) outcome += model(at).forward(params_, samples(micro), micro.leaves());
}

Status StageShare::send(size_t at) {
  const MicroBatch& micro = micros_[at];
  if (micro.is_empty()) return ok();
  return seat_.pipe->send_output({model(at).output(), static_cast<size_t>(model(at).flow_out(micro.leaves()))});
}

Status StageShare::backward(size_t at) {
  const MicroBatch& micro = micros_[at];
  if (!micro.is_empty()) {
    TRY(seat_.pipe->receive_output_gradient(
        {model(at).output_gradient(), static_cast<size_t>(model(at).flow_out(micro.leaves()))}));
  }
  add_to_tree(at);
  return ok();
}

Status StageShare::give_back(size_t at) {
  const MicroBatch& micro = micros_[at];
  if (micro.is_empty()) return ok();
  return seat_.pipe->send_input_gradient(
      {model(at).input_gradient(), static_cast<size_t>(model(at).flow_in(micro.leaves()))});
}

float* StageShare::arena(size_t target, int waiting) {
  if (waiting == 0) return updater_.gradients(me_, target);
  const auto at = static_cast<size_t>(waiting - 1);
  if (at == waiting_.size()) waiting_.emplace_back(new float[static_cast<size_t>(plan_.layout.size())]);
  return waiting_[at].get();
}

// As a counter: sums of 1, 2, 4... micro-batches wait for an equal to their right.
void StageShare::add_to_tree(size_t at) {
  const MicroBatch& micro = micros_[at];
  int waiting = std::popcount(micro.index);
  float* sum = arena(micro.target, waiting);
  if (micro.is_empty()) {
    for (const Range range : held_) std::fill_n(sum + range.begin, range.size(), 0.0f);
  } else {
    model(at).backward(params_, samples(micro), micro.leaves(), sum, false);
  }
  for (uint64_t rest = micro.index; rest & 1; rest >>= 1) {
    float* left = arena(micro.target, --waiting);
    for (const Range range : held_) {
      kernels<float>().add_to(range.size(), sum + range.begin, left + range.begin);
    }
    sum = left;
  }
}

Result<Outcome> StageShare::evaluate(Range range, int64_t step) {
  seat_.pipe->begin(step);
  Model<float>& model = this->model(0);
  Outcome outcome;
  std::vector<uint32_t> ids;
  for (int64_t first = range.begin; first < range.end; first += capacity_) {
    const int64_t count = std::min(capacity_, range.end - first);
    const Leaves leaves{&count, 1};
    if (sees_samples()) {
      ids.resize(static_cast<size_t>(count));
      std::iota(ids.begin(), ids.end(), static_cast<uint32_t>(first));
      TRY(samples_.read(*plan_.test, ids));
    }
    TRY(seat_.pipe->receive_input({model.input(), static_cast<size_t>(model.flow_in(leaves))}));
    outcome += model.forward(params_, sees_samples() ? samples_.from(0) : Samples<float>{}, leaves);
    TRY(seat_.pipe->send_output({model.output(), static_cast<size_t>(model.flow_out(leaves))}));
  }
  return outcome;
}

}  // namespace dtrain::engine
