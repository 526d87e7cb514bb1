#include "engine/cuda/device_stage_share.h"

#include <algorithm>
#include <numeric>

namespace dtrain::engine::cuda {

namespace {

constexpr int64_t kNone = -1;

}  // namespace

template <class T>
Result<std::unique_ptr<Share>> DeviceStageShare<T>::make(const RunPlan& plan, const WaitedRank& rank) {
  return make_on_device(plan, rank, [&] { return std::unique_ptr<Share>(new DeviceStageShare(plan, rank)); });
}

template <class T>
DeviceStageShare<T>::DeviceStageShare(const RunPlan& plan, const WaitedRank& rank)
    : plan_(plan),
      rank_(rank.rank),
      watch_(rank.watch),
      part_(rank.rank.part()),
      capacity_((plan.batch + plan.spec.strategy.micro_batches - 1) / plan.spec.strategy.micro_batches),
      samples_(rank_, plan.data.shape, sees_samples() ? plan.batch : 0) {
  const int after = part_.stages - part_.stage;  // with this one
  for (int i = 0; i < std::min(plan.spec.strategy.micro_batches, after); ++i) {
    models_.push_back(make_device_model<T>(rank_.context(), plan.spec.model, plan.data.shape, capacity_, part_));
  }
  rehearse();
}

template <class T>
void DeviceStageShare<T>::rehearse() {
  if (rank_.device().has_failed()) return;  // what was to be zeros may be anything
  Rehearsal<T> rehearsal(rank_, *models_.front(), sees_samples() ? samples_.from(0) : Samples<T>{});
  const int64_t micros = plan_.spec.strategy.micro_batches;
  for (const int64_t batch : batch_sizes(plan_)) {
    for (const int64_t count : std::set{batch / micros, (batch + micros - 1) / micros}) {
      if (count == 0) continue;
      rehearsal.train(count, false);
      rehearsal.train(count, true);
    }
  }
  if (!plan_.test) return;
  for (const int64_t count : piece_sizes(plan_.test->size(), capacity_)) rehearsal.forward(count);
}

template <class T>
Range DeviceStageShare<T>::reads(int64_t batch) const {
  return sees_samples() ? Range{0, batch} : Range{};
}

// The order of StageShare::train().
template <class T>
Result<Outcome> DeviceStageShare<T>::train(const Batch& batch, int64_t step) {
  rank_.device().use();
  rank_.clear_totals();
  const int64_t size = batch.size();
  micros_.clear();
  for (int64_t i = 0; i < plan_.spec.strategy.micro_batches; ++i) {
    const Range micro{size * i / plan_.spec.strategy.micro_batches, size * (i + 1) / plan_.spec.strategy.micro_batches};
    if (micro.size() > 0) micros_.push_back(micro);
  }
  if (sees_samples()) TRY(samples_.read(plan_.train, batch.samples()));
  const auto count = static_cast<int64_t>(micros_.size());
  const int64_t ahead = std::min<int64_t>(count, part_.stages - part_.stage - 1);
  // As DeviceShare::train_piece().
  const auto wait_for_before = [&] { return rank_.wait_for(step - 1, watch_(step - 1, "all-reduce")); };
  for (int64_t micro = 0; micro < ahead; ++micro) {
    pass_before(kNone, micro);
    TRY(forward(static_cast<size_t>(micro), step - 1, "all-reduce"));
    pass_after(micro, kNone);
  }
  if (ahead < count) pass_before(kNone, ahead);
  for (int64_t micro = ahead; micro < count; ++micro) {
    TRY(forward(static_cast<size_t>(micro), step - 1, "all-reduce"));
    pass_after(micro, micro - ahead);
    TRY(wait_for_before());
    TRY(backward(static_cast<size_t>(micro - ahead), step));
    pass_before(micro - ahead, micro + 1 < count ? micro + 1 : kNone);
  }
  for (int64_t micro = count - ahead; micro < count; ++micro) {
    pass_after(kNone, micro);
    TRY(wait_for_before());
    TRY(backward(static_cast<size_t>(micro), step));
    pass_before(micro, kNone);
  }
  TRY(rank_.context().status());
  return Outcome{};
}

template <class T>
void DeviceStageShare<T>::pass_before(int64_t given, int64_t taken) {
  if (part_.is_first()) return;
  Communicator::Parcel parcel{.to = part_.stage - 1, .from = part_.stage - 1};
  const auto bytes_of = [&](int64_t micro) {
    const int64_t samples = micros_[static_cast<size_t>(micro)].size();
    return model(static_cast<size_t>(micro)).flow_in({&samples, 1}) * static_cast<int64_t>(sizeof(T));
  };
  if (given != kNone) {
    parcel.out = model(static_cast<size_t>(given)).input_gradient();
    parcel.out_bytes = bytes_of(given);
  }
  if (taken != kNone) {
    parcel.in = model(static_cast<size_t>(taken)).input();
    parcel.in_bytes = bytes_of(taken);
  }
  rank_.links().row->pass(rank_.stream(), parcel);
}

template <class T>
void DeviceStageShare<T>::pass_after(int64_t given, int64_t taken) {
  if (part_.is_last()) return;
  Communicator::Parcel parcel{.to = part_.stage + 1, .from = part_.stage + 1};
  const auto bytes_of = [&](int64_t micro) {
    const int64_t samples = micros_[static_cast<size_t>(micro)].size();
    return model(static_cast<size_t>(micro)).flow_out({&samples, 1}) * static_cast<int64_t>(sizeof(T));
  };
  if (given != kNone) {
    parcel.out = model(static_cast<size_t>(given)).output();
    parcel.out_bytes = bytes_of(given);
  }
  if (taken != kNone) {
    parcel.in = model(static_cast<size_t>(taken)).output_gradient();
    parcel.in_bytes = bytes_of(taken);
  }
  rank_.links().row->pass(rank_.stream(), parcel);
}

template <class T>
Status DeviceStageShare<T>::forward(size_t micro, int64_t step, const char* doing) {
  const int64_t count = micros_[micro].size();
  Pacer pacer(rank_, watch_);
  const LayerDone done = [&] { pacer.layer_is_enqueued(step, doing); };
  model(micro).forward(rank_.weights<T>(), samples(micro), {&count, 1}, done);
  return pacer.status();
}

template <class T>
Status DeviceStageShare<T>::backward(size_t micro, int64_t step) {
  const int64_t count = micros_[micro].size();
  Pacer pacer(rank_, watch_);
  const GradientsReady ready = [&](int64_t) { pacer.layer_is_enqueued(step, "all-reduce"); };
  model(micro).backward(rank_.weights<T>(), samples(micro), {&count, 1}, rank_.gradients(), micro > 0, ready);
  return pacer.status();
}

template <class T>
Result<Outcome> DeviceStageShare<T>::evaluate(Range range, int64_t step) {
  rank_.device().use();
  Outcome outcome;
  std::vector<uint32_t> ids;
  for (int64_t first = range.begin; first < range.end; first += capacity_) {
    micros_ = {{0, std::min(capacity_, range.end - first)}};
    rank_.clear_totals();
    if (sees_samples()) {
      ids.resize(static_cast<size_t>(micros_[0].size()));
      std::iota(ids.begin(), ids.end(), static_cast<uint32_t>(first));
      TRY(samples_.read(*plan_.test, ids));
    }
    pass_before(kNone, 0);
    TRY(forward(0, step, "evaluate"));
    pass_after(0, kNone);
    TRY(const Outcome piece, rank_.totals(watch_(step, "evaluate")));
    outcome += piece;
  }
  return outcome;
}

template class DeviceStageShare<float>;
template class DeviceStageShare<Bfloat16>;

}  // namespace dtrain::engine::cuda
