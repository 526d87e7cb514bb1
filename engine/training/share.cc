#include "engine/training/share.h"

#include "engine/training/batch_share.h"
#include "engine/training/stage_share.h"

namespace dtrain::engine {

Result<std::unique_ptr<Share>> make_share(const RunPlan& plan, Updater& updater, int me) {
  const auto make = [&](auto share) { return std::unique_ptr<Share>(std::move(share)); };
  if (updater.seat(me).pipe != nullptr) return make(std::make_unique<StageShare>(plan, updater, me));
  return make(std::make_unique<BatchShare>(plan, updater, me));
}

}  // namespace dtrain::engine
