#include "engine/cuda/gpus.h"

#include "engine/cuda/device_share.h"
#include "engine/cuda/device_stage_share.h"
#include "engine/cuda/device_staging.h"
#include "engine/cuda/device_updater.h"

namespace dtrain::engine::cuda {

namespace {

Result<std::unique_ptr<Updater>> open_updater(const RunPlan& plan, std::unique_ptr<Gang> gang) {
  TRY(auto updater, DeviceUpdater::open(plan, std::move(gang)));
  return std::unique_ptr<Updater>(std::move(updater));
}

Result<std::unique_ptr<Updater>> stage(const RunPlan& plan, std::unique_ptr<Updater> keeper) {
  TRY(auto updater, DeviceStaging::open(plan, std::move(keeper)));
  return std::unique_ptr<Updater>(std::move(updater));
}

WaitedRank waited_rank(Updater& updater, int me) {
  if (auto* staging = dynamic_cast<DeviceStaging*>(&updater)) {
    // Nobody else is waited for on the GPU.
    return {staging->rank(me), [](int64_t, const char*) { return std::function<Status()>(); },
            [staging](const Error& why) { return staging->fail(why); }};
  }
  auto& own = dynamic_cast<DeviceUpdater&>(updater);
  return {own.rank(me), [&own, me](int64_t step, const char* doing) { return own.watch(me, step, doing); },
          [&own, me](const Error& why) { return own.give_up(me, why); }};
}

template <class T>
Result<std::unique_ptr<Share>> make_share_of(const RunPlan& plan, Updater& updater, int me) {
  const WaitedRank rank = waited_rank(updater, me);
  if (rank.rank.part().stages > 1) return DeviceStageShare<T>::make(plan, rank);
  return DeviceShare<T>::make(plan, updater, me, rank);
}

Result<std::unique_ptr<Share>> make_share(const RunPlan& plan, Updater& updater, int me) {
  if (plan.precision() == Precision::Bf16) return make_share_of<Bfloat16>(plan, updater, me);
  return make_share_of<float>(plan, updater, me);
}

}  // namespace

const Gpus& gpus() {
  static const Gpus all{
      .count = &visible_devices, .open_updater = &open_updater, .stage = &stage, .make_share = &make_share};
  return all;
}

}  // namespace dtrain::engine::cuda
