#include "engine/training/saver.h"

#include <cstdio>

#include "engine/optimizer.h"
#include "engine/training/arena_tensors.h"
#include "engine/training/training_state.h"

namespace dtrain::engine {

Result<Saver> Saver::open(const RunPlan& plan) {
  TRY(Checkpoints checkpoints, Checkpoints::open(plan.output_dir / kEngineCheckpoints, plan.spec.checkpoint_keep));
  return Saver(plan, std::move(checkpoints));
}

Status Saver::save(Updater& updater, int64_t steps, bool is_last) {
  struct Tensors {
    std::vector<TensorView> model, optimizer;
    std::vector<ArenaTensors> kept;
  };
  const auto tensors = std::make_shared<Tensors>();
  tensors->kept.emplace_back(plan_.layout, updater.params(), "", tensors->model);
  const int states = OptimizerKernel(plan_.spec.optimizer, plan_.layout).states();
  for (int i = 0; i < states; ++i) {
    tensors->kept.emplace_back(plan_.layout, updater.state(i), state_prefix(i), tensors->optimizer);
  }
  CheckpointContent content{tensors->model, tensors->optimizer,
                            state_of(plan_, updater.leaves(), steps, updater.updates(steps))};
  if (updater.keeps_collected()) content.stays = tensors;
  const Status saved = is_last ? checkpoints_.save(steps, content) : checkpoints_.save_behind(steps, content);
  if (const std::string lost = checkpoints_.take_lost(); !lost.empty()) {
    fmt::print("the checkpoint before that of step {} was lost: {}\n", steps, lost);
    std::fflush(stdout);
  }
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
