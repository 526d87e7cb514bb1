// How a replica trains on GPUs, if the program has been built with a backend for them. Participants are
// threads then, each with a GPU of its own.
#pragma once

#include <functional>
#include <memory>

#include "engine/comm/gang.h"
#include "engine/strategies/updater.h"
#include "engine/training/run_plan.h"
#include "engine/training/share.h"

namespace dtrain::engine {

struct Gpus {
  // That this process may use.
  std::function<Result<int>()> count;
  std::function<Result<std::unique_ptr<Updater>>(const RunPlan&, std::unique_ptr<Gang>)> open_updater;
  // Of participants whose parameters another Updater keeps on CPUs.
  std::function<Result<std::unique_ptr<Updater>>(const RunPlan&, std::unique_ptr<Updater> keeper)> stage;
  // Of an updater that came from one of them.
  std::function<Result<std::unique_ptr<Share>>(const RunPlan&, Updater&, int me)> make_share;
};

}  // namespace dtrain::engine
