#include "engine/strategies/group_partners.h"

namespace dtrain::engine {

void GroupPartners::add_up(float* values, int64_t count) {
  if (!status_.ok()) return;
  status_ = group_->all_reduce({values, static_cast<size_t>(count)}, deadline(), moment_);
}

void GroupPartners::gather(const float* mine, float* all, int64_t count) {
  if (!status_.ok()) return;
  const auto size = static_cast<size_t>(count);
  status_ = group_->all_gather({mine, size}, {all, size * group_->members().size()}, deadline(), moment_);
}

}  // namespace dtrain::engine
