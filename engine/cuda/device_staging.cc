#include "engine/cuda/device_staging.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/strategies/not_finite.h"

namespace dtrain::engine::cuda {

Result<std::unique_ptr<DeviceStaging>> DeviceStaging::open(const RunPlan& plan, std::unique_ptr<Updater> keeper) {
  std::unique_ptr<DeviceStaging> made(new DeviceStaging(plan, std::move(keeper)));
  std::set<std::string> uuids;
  for (int thread = 0; thread < plan.threads; ++thread) {
    const int me = made->first() + thread;
    if (const Status status = made->start(me); !status.ok()) return made->fail(status.error());
    if (uuids.insert(made->rank(me).device().uuid()).second) continue;
    return made->fail({Code::InvalidArgument,
                       fmt::format("two participants have the same GPU, {}", made->rank(me).device().described()),
                       "CUDA_VISIBLE_DEVICES left as it is"});
  }
  return made;
}

DeviceStaging::DeviceStaging(const RunPlan& plan, std::unique_ptr<Updater> keeper)
    : plan_(plan), keeper_(std::move(keeper)), ranks_(static_cast<size_t>(plan.threads)) {}

Status DeviceStaging::start(int me) {
  TRY(ranks_[local(me)], Rank::open(plan_, {}, me - first(), 0));
  const auto bytes = static_cast<size_t>(plan_.layout.size()) * sizeof(float);
  registered_.emplace_back(keeper_->gradients(me, 0), bytes);
  if (me == first()) registered_.emplace_back(const_cast<float*>(keeper_->parameters(me)), bytes);
  return ok();
}

ArenaSizes DeviceStaging::sizes() const {
  const int64_t devices = plan_.layout.size() * plan_.threads;
  return {devices, devices, 0};
}

Result<Outcome> DeviceStaging::finish_step(int me, const Update& update, const Outcome&) {
  Rank& mine = rank(me);
  mine.device().use();
  mine.device().copy_to_host(mine.gradients(), plan_.layout.size(), keeper_->gradients(me, 0));
  // The first node has what belongs to all of them.
  for (size_t node = 1; node < keeper_->nodes(me).size(); ++node) {
    std::fill_n(keeper_->gradients(me, node), plan_.layout.size(), 0.0f);
  }
  TRY(const Outcome own, mine.totals({}));
  if (!std::isfinite(own.loss)) return wrong_loss(own.loss, update.step);
  TRY(const Outcome outcome, keeper_->finish_step(me, update, own));
  fetch(me);
  return outcome;
}

Result<Outcome> DeviceStaging::settle(int me, int64_t step) {
  TRY(const Outcome rest, keeper_->settle(me, step));
  rank(me).device().use();
  fetch(me);
  return rest;
}

// Whose copy the next step waits for before the keeper is asked again.
void DeviceStaging::fetch(int me) {
  Rank& mine = rank(me);
  mine.device().copy_to_device(keeper_->parameters(me), plan_.layout.size(), mine.params());
  mine.refresh();
}

Result<int64_t> DeviceStaging::agree(int me, int64_t step) {
  TRY(const int64_t agreed, keeper_->agree(me, step));
  rank(me).device().use();
  fetch(me);
  return agreed;
}

}  // namespace dtrain::engine::cuda
