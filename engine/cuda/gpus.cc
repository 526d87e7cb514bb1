#include "engine/cuda/gpus.h"

#include "engine/cuda/device_all_reduce.h"
#include "engine/cuda/device_share.h"

namespace dtrain::engine::cuda {

namespace {

Result<std::unique_ptr<Updater>> open_updater(const RunPlan& plan, std::unique_ptr<Gang> gang) {
  TRY(auto updater, DeviceAllReduce::open(plan, std::move(gang)));
  return std::unique_ptr<Updater>(std::move(updater));
}

Result<std::unique_ptr<Share>> make_share(const RunPlan& plan, Updater& updater, int me) {
  Rank& rank = static_cast<DeviceAllReduce&>(updater).rank(me);
  if (plan.precision() == Precision::Bf16) return DeviceShare<Bfloat16>::make(plan, updater, me, rank);
  return DeviceShare<float>::make(plan, updater, me, rank);
}

}  // namespace

const Gpus& gpus() {
  static const Gpus all{.count = &visible_devices, .open_updater = &open_updater, .make_share = &make_share};
  return all;
}

}  // namespace dtrain::engine::cuda
