#include "engine/training/saver.h"

#include "engine/optimizer.h"
#include "engine/training/arena_tensors.h"
#include "engine/training/training_state.h"

namespace dtrain::engine {

Result<Saver> Saver::open(const RunPlan& plan) {
  TRY(Checkpoints checkpoints, Checkpoints::open(plan.output_dir / kEngineCheckpoints, plan.spec.checkpoint_keep));
  return Saver(plan, std::move(checkpoints));
}

Status Saver::save(Updater& updater, int64_t steps) {
  std::vector<TensorView> model, optimizer;
  std::vector<ArenaTensors> kept;
  kept.emplace_back(plan_.layout, updater.params(), "", model);
  const int states = OptimizerKernel(plan_.spec.optimizer, plan_.layout).states();
  for (int i = 0; i < states; ++i) kept.emplace_back(plan_.layout, updater.state(i), state_prefix(i), optimizer);
  const Status saved =
      checkpoints_.save(steps, {model, optimizer, state_of(plan_, updater.leaves(), steps, updater.updates(steps))});
  return saved.ok() ? saved : Error(saved.error()).with_context(fmt::format("after step {}", steps));
}

Result<std::string> Saver::finish(Updater& updater) {
  std::vector<TensorView> model;
  const ArenaTensors kept(plan_.layout, updater.params(), "", model);
  Metadata metadata{{"format", "pt"}};
  if (plan_.train.kind() == Dataset::Kind::Images) {
    metadata["input_mean"] = fmt::format("{}", plan_.train.mean());
    metadata["input_deviation"] = fmt::format("{}", plan_.train.deviation());
  }
  const std::filesystem::path path = plan_.output_dir / kModelFile;
  TRY(write_model(path, model, metadata));
  return path.string();
}

}  // namespace dtrain::engine
