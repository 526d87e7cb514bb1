#include "engine/training/share.h"

#include "engine/training/batch_share.h"
#include "engine/training/stage_share.h"

namespace dtrain::engine {

std::unique_ptr<Share> make_share(const RunPlan& plan, Updater& updater, int me) {
  if (updater.seat(me).pipe != nullptr) return std::make_unique<StageShare>(plan, updater, me);
  return std::make_unique<BatchShare>(plan, updater, me);
}

}  // namespace dtrain::engine
