// What outlives a training: checkpoints, from which start.h goes on, and the model at the end, both with
// tensors as PyTorch has them. The master's alone.
#pragma once

#include <string>

#include "engine/formats/checkpoint.h"
#include "engine/strategies/updater.h"
#include "engine/training/run_plan.h"

namespace dtrain::engine {

class Saver {
 public:
  static Result<Saver> open(const RunPlan& plan);

  // The last one is on the disk on return; others may be on their way to it.
  Status save(Updater& updater, int64_t steps, bool is_last);
  // Until nothing reads what the updater collected.
  void settle() { checkpoints_.settle(); }
  // The path of the model.
  Result<std::string> finish(Updater& updater);

 private:
  Saver(const RunPlan& plan, Checkpoints checkpoints) : plan_(plan), checkpoints_(std::move(checkpoints)) {}

  const RunPlan& plan_;
  Checkpoints checkpoints_;
};

}  // namespace dtrain::engine
