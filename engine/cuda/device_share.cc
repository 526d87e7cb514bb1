#include "engine/cuda/device_share.h"

#include <algorithm>
#include <numeric>

namespace dtrain::engine::cuda {

template <class T>
Result<std::unique_ptr<Share>> DeviceShare<T>::make(const RunPlan& plan, Updater& updater, int me, Rank& rank) {
  rank.device().use();
  if (const auto* gpt = std::get_if<GptSpec>(&plan.spec.model); gpt != nullptr && gpt->width / gpt->heads > kMaxHeadWidth) {
    return Error{Code::InvalidArgument,
                 fmt::format("heads of {} are wider than the {} that attention on GPUs takes", gpt->width / gpt->heads,
                             kMaxHeadWidth),
                 "more heads"};
  }
  try {
    return std::unique_ptr<Share>(new DeviceShare(plan, updater, me, rank));
  } catch (const std::bad_alloc&) {
    return Error{Code::ResourceExhausted,
                 fmt::format("{} has not enough memory for the activations of its part of a batch",
                             rank.device().name()),
                 "a smaller micro-batch: the batch is then computed in pieces"};
  }
}

template <class T>
DeviceShare<T>::DeviceShare(const RunPlan& plan, Updater& updater, int me, Rank& rank)
    : plan_(plan),
      rank_(rank),
      leaves_of_mine_(leaves_of(updater.nodes(me))),
      leaves_(updater.leaves()),
      rows_per_sample_(plan.rows_per_sample) {
  share_ = (plan.batch * leaves_of_mine_.size() + leaves_ - 1) / leaves_ + 1;
  capacity_ = plan.spec.micro_batch > 0 ? std::min<int64_t>(plan.spec.micro_batch, share_) : share_;
  const Seat seat = updater.seat(me);
  model_ = make_device_model<T>(rank.context(), plan.spec.model, plan.shape, capacity_, seat.part);
  const int64_t pixels = share_ * plan.shape.pixels(), tokens = share_ * plan.shape.context;
  read_pixels_ = PinnedMemory<float>(pixels);
  read_ids_ = PinnedMemory<int32_t>(tokens);
  read_labels_ = PinnedMemory<int32_t>(share_ * rows_per_sample_);
  if (!std::is_same_v<T, float>) float_pixels_ = DeviceMemory<float>(pixels);
  pixels_ = DeviceMemory<T>(pixels);
  ids_ = DeviceMemory<int32_t>(tokens);
  labels_ = DeviceMemory<int32_t>(share_ * rows_per_sample_);
}

template <class T>
DeviceShare<T>::~DeviceShare() {
  rank_.device().use();
  for (auto& [count, graph] : graphs_) {
    if (graph.executable != nullptr) cudaGraphExecDestroy(graph.executable);
  }
}

// Nothing of the step before is on its way any more: its end was waited for.
template <class T>
void DeviceShare<T>::read(const Dataset& data, std::span<const uint32_t> ids) {
  Device& device = rank_.device();
  const auto count = static_cast<int64_t>(ids.size());
  if (data.kind() == Dataset::Kind::Images) {
    data.images(ids, read_pixels_.data(), read_labels_.data());
    const int64_t pixels = count * data.pixels();
    if constexpr (std::is_same_v<T, float>) {
      device.copy_to_device(read_pixels_.data(), pixels, pixels_.data());
    } else {
      device.copy_to_device(read_pixels_.data(), pixels, float_pixels_.data());
      convert(rank_.stream(), pixels, float_pixels_.data(), pixels_.data());
    }
  } else {
    data.tokens(ids, read_ids_.data(), read_labels_.data());
    device.copy_to_device(read_ids_.data(), count * data.context(), ids_.data());
  }
  device.copy_to_device(read_labels_.data(), count * rows_per_sample_, labels_.data());
}

template <class T>
Samples<T> DeviceShare<T>::samples(int64_t first) {
  return {pixels_.data() + first * plan_.shape.pixels(), ids_.data() + first * plan_.shape.context,
          labels_.data() + first * rows_per_sample_};
}

template <class T>
Result<Outcome> DeviceShare<T>::train(std::span<const uint32_t> batch, int64_t) {
  Device& device = rank_.device();
  device.use();
  const Range mine = samples_of(static_cast<int64_t>(batch.size()), leaves_of_mine_, leaves_);
  read(plan_.train, batch.subspan(static_cast<size_t>(mine.begin), static_cast<size_t>(mine.size())));
  device.check(cudaMemsetAsync(rank_.context().totals(), 0, sizeof(Totals), rank_.stream()), "clear");
  if (mine.size() == 0) {
    device.check(cudaMemsetAsync(rank_.gradients(), 0, static_cast<size_t>(plan_.layout.size()) * sizeof(float),
                                 rank_.stream()),
                 "clear");
  } else if (mine.size() <= capacity_) {
    train_all(mine.size());
  } else {
    for (int64_t first = 0; first < mine.size(); first += capacity_) {
      train_piece(first, std::min(capacity_, mine.size() - first), first > 0);
    }
  }
  TRY(rank_.context().status());
  return Outcome{};
}

template <class T>
void DeviceShare<T>::train_piece(int64_t first, int64_t count, bool add) {
  model_->train(rank_.weights<T>(), samples(first), {&count, 1}, rank_.gradients(), add);
}

// The first time plans are made and memory grows, which a graph can't hold.
template <class T>
void DeviceShare<T>::train_all(int64_t count) {
  Graph& graph = graphs_[count];
  if (graph.state == Graph::Ran) graph.state = capture(count, graph) ? Graph::Captured : Graph::Refused;
  if (graph.state == Graph::Captured) {
    rank_.device().check(cudaGraphLaunch(graph.executable, rank_.stream()), "start a step's graph");
    return;
  }
  train_piece(0, count, false);
  if (graph.state == Graph::New) graph.state = Graph::Ran;
}

template <class T>
bool DeviceShare<T>::capture(int64_t count, Graph& graph) {
  if (cudaStreamBeginCapture(rank_.stream(), cudaStreamCaptureModeThreadLocal) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  train_piece(0, count, false);
  cudaGraph_t captured = nullptr;
  const bool ended = cudaStreamEndCapture(rank_.stream(), &captured) == cudaSuccess && captured != nullptr;
  const bool made = ended && cudaGraphInstantiate(&graph.executable, captured, 0) == cudaSuccess;
  if (captured != nullptr) cudaGraphDestroy(captured);
  if (!made) cudaGetLastError();  // without a graph then
  return made;
}

template <class T>
Result<Outcome> DeviceShare<T>::evaluate(Range range, int64_t) {
  Device& device = rank_.device();
  device.use();
  Outcome outcome;
  std::vector<uint32_t> ids;
  for (int64_t first = range.begin; first < range.end; first += capacity_) {
    ids.resize(static_cast<size_t>(std::min(capacity_, range.end - first)));
    std::iota(ids.begin(), ids.end(), static_cast<uint32_t>(first));
    device.check(cudaMemsetAsync(rank_.context().totals(), 0, sizeof(Totals), rank_.stream()), "clear");
    read(*plan_.test, ids);
    model_->evaluate(rank_.weights<T>(), samples(0), static_cast<int64_t>(ids.size()));
    TRY(const Outcome piece, rank_.totals({}));
    outcome += piece;
  }
  return outcome;
}

template class DeviceShare<float>;
template class DeviceShare<Bfloat16>;

}  // namespace dtrain::engine::cuda
