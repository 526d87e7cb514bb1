#include "daemon/climb.h"

namespace dtrain::daemon {

void Climb::take(double value, bool highest_is_best) {
  const bool is_better = std::isnan(best_) || (highest_is_best ? value > best_ : value < best_);
  if (std::isfinite(value) && is_better) best_ = value;
}

void Climb::come_to(const StopEarly& stop, double reached) {
  if (!std::isfinite(reached)) return;
  while (rungs_.size() < StopEarly::kRungsMost && reached >= static_cast<double>(stop.rung(static_cast<uint32_t>(rungs_.size())))) {
    rungs_.push_back(best_);
  }
}

}  // namespace dtrain::daemon
