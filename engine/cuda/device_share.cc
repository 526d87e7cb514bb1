#include "engine/cuda/device_share.h"

#include <algorithm>
#include <numeric>

namespace dtrain::engine::cuda {

namespace {

int64_t share_of(const RunPlan& plan, Range leaves_of_mine, int64_t leaves) {
  return (plan.batch_at_once * leaves_of_mine.size() + leaves - 1) / leaves;
}

}  // namespace

template <class T>
Result<std::unique_ptr<Share>> DeviceShare<T>::make(const RunPlan& plan, Updater& updater, int me,
                                                    const WaitedRank& rank) {
  return make_on_device(plan, rank, [&] {
    return std::unique_ptr<Share>(new DeviceShare(plan, updater, me, rank));
  });
}

template <class T>
DeviceShare<T>::DeviceShare(const RunPlan& plan, Updater& updater, int me, const WaitedRank& rank)
    : plan_(plan),
      rank_(rank.rank),
      watch_(rank.watch),
      leaves_of_mine_(leaves_of(updater.nodes(me))),
      leaves_(updater.leaves()),
      share_(share_of(plan, leaves_of_mine_, leaves_)),
      capacity_(plan.spec.micro_batch > 0 ? std::min<int64_t>(plan.spec.micro_batch, share_) : share_),
      partners_(rank_),
      model_(make_device_model<T>(rank_.context(), plan.spec.model, plan.data.shape, capacity_, rank_.part(), &partners_)),
      samples_(rank_, plan.data.shape, share_) {
  if (rank_.links().world == nullptr) return;  // nobody waits
  rehearse(plan.test ? updater.evaluated(me, plan.test->size()).size() : 0);
}

template <class T>
void DeviceShare<T>::rehearse(int64_t evaluated) {
  if (rank_.device().has_failed()) return;  // what was to be zeros may be anything
  partners_.rehearse(true);
  Rehearsal<T> rehearsal(rank_, *model_, samples_.from(0));
  for (const int64_t batch : batch_sizes(plan_)) {
    const int64_t mine = reads(batch).size();
    for (const int64_t count : piece_sizes(mine, capacity_)) {
      rehearsal.train(count, false);
      if (mine > capacity_) rehearsal.train(count, true);
    }
  }
  for (const int64_t count : piece_sizes(evaluated, capacity_)) rehearsal.forward(count);
  partners_.rehearse(false);
}

template <class T>
DeviceShare<T>::~DeviceShare() {
  rank_.device().use();
  for (auto& [count, graph] : graphs_) {
    if (graph.executable != nullptr) cudaGraphExecDestroy(graph.executable);
  }
}

template <class T>
Range DeviceShare<T>::reads(int64_t batch) const {
  return samples_of(batch, leaves_of_mine_, leaves_);
}

template <class T>
Result<Outcome> DeviceShare<T>::train(const Batch& batch, int64_t step) {
  rank_.device().use();
  const Range mine = reads(batch.size());
  TRY(samples_.read(plan_.train, batch.part(mine).samples()));
  rank_.clear_totals();
  std::optional<int64_t> before;
  if (rank_.links().world != nullptr) before = step - 1;
  if (mine.size() == 0) {
    rank_.clear_gradients();
  } else if (mine.size() <= capacity_) {
    TRY(train_all(mine.size(), before));
  } else {
    for (int64_t first = 0; first < mine.size(); first += capacity_) {
      TRY(train_piece(first, std::min(capacity_, mine.size() - first), first + capacity_ >= mine.size(), before));
    }
  }
  TRY(rank_.context().status());
  return Outcome{};
}

template <class T>
bool DeviceShare<T>::meets_others() const {
  return rank_.part().slices > 1 || (rank_.gradient_sum() != nullptr && rank_.gradient_sum()->overlaps());
}

// With several GPUs a step that is not one launch is ahead by its forward alone, which keeps the GPU busy until backward is
// there: for the reason of Rank::pace().
template <class T>
Status DeviceShare<T>::train_piece(int64_t first, int64_t count, bool is_last, std::optional<int64_t> before) {
  GradientSum* const sum = is_last ? rank_.gradient_sum() : nullptr;
  Pacer pacer(rank_, watch_);
  const LayerDone done = [&] {
    if (before) pacer.layer_is_enqueued(*before, "all-reduce");
  };
  const GradientsReady ready = [&](int64_t offset) {
    if (sum != nullptr) sum->ready(offset);
    if (before) pacer.layer_is_enqueued(*before + 1, "all-reduce");
  };
  model_->forward(rank_.weights<T>(), samples_.from(first), {&count, 1}, done);
  TRY(pacer.status());
  if (before) TRY(rank_.wait_for(*before, watch_(*before, "all-reduce")));
  model_->backward(rank_.weights<T>(), samples_.from(first), {&count, 1}, rank_.gradients(), first > 0, ready);
  return pacer.status();
}

// The first time plans are made and memory grows, which a graph can't hold.
template <class T>
Status DeviceShare<T>::train_all(int64_t count, std::optional<int64_t> before) {
  if (meets_others()) return train_piece(0, count, true, before);
  Graph& graph = graphs_[count];
  if (graph.state == Graph::Ran) graph.state = capture(count, graph) ? Graph::Captured : Graph::Refused;
  if (graph.state == Graph::Captured) {
    rank_.device().check(cudaGraphLaunch(graph.executable, rank_.stream()), "start a step's graph");
    return ok();
  }
  if (graph.state == Graph::New) graph.state = Graph::Ran;
  return train_piece(0, count, true, before);
}

template <class T>
bool DeviceShare<T>::capture(int64_t count, Graph& graph) {
  if (cudaStreamBeginCapture(rank_.stream(), cudaStreamCaptureModeThreadLocal) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  const bool done = train_piece(0, count, true, std::nullopt).ok();
  cudaGraph_t captured = nullptr;
  const bool ended = cudaStreamEndCapture(rank_.stream(), &captured) == cudaSuccess && captured != nullptr && done;
  const bool made = ended && cudaGraphInstantiate(&graph.executable, captured, 0) == cudaSuccess;
  if (captured != nullptr) cudaGraphDestroy(captured);
  if (!made) cudaGetLastError();  // without a graph then
  return made;
}

template <class T>
Result<Outcome> DeviceShare<T>::evaluate(Range range, int64_t step) {
  rank_.device().use();
  Outcome outcome;
  std::vector<uint32_t> ids;
  for (int64_t first = range.begin; first < range.end; first += capacity_) {
    ids.resize(static_cast<size_t>(std::min(capacity_, range.end - first)));
    std::iota(ids.begin(), ids.end(), static_cast<uint32_t>(first));
    rank_.clear_totals();
    TRY(samples_.read(*plan_.test, ids));
    Pacer pacer(rank_, watch_);
    const LayerDone done = [&] { pacer.layer_is_enqueued(step, "evaluate"); };
    model_->evaluate(rank_.weights<T>(), samples_.from(0), static_cast<int64_t>(ids.size()), done);
    TRY(pacer.status());
    TRY(const Outcome piece, rank_.totals(watch_(step, "evaluate")));
    outcome += piece;
  }
  return rank_.part().slice == 0 ? outcome : Outcome{};
}

template class DeviceShare<float>;
template class DeviceShare<Bfloat16>;

}  // namespace dtrain::engine::cuda
