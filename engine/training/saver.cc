#include "engine/training/saver.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "engine/buffer.h"
#include "engine/optimizer.h"

namespace dtrain::engine {

namespace {

using Json = nlohmann::json;

// What one arena is in a file: tensors under their names, those that lie transposed turned back.
class ArenaTensors {
 public:
  ArenaTensors(const Layout& layout, std::span<const float> arena, const std::string& prefix,
               std::vector<TensorView>& out) {
    for (const Parameter& parameter : layout.parameters()) {
      TensorView view{prefix + parameter.name, parameter.shape,
                      arena.subspan(static_cast<size_t>(parameter.offset), static_cast<size_t>(parameter.size()))};
      if (parameter.transposed) {
        std::swap(view.shape[0], view.shape[1]);
        Buffer<float>& turned = turned_.emplace_back(parameter.size());
        transpose(view.values.data(), parameter.shape[0], parameter.shape[1], turned.data());
        view.values = {turned.data(), static_cast<size_t>(turned.size())};
      }
      out.push_back(std::move(view));
    }
  }

  static void transpose(const float* from, int64_t rows, int64_t columns, float* to) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) to[j * rows + i] = from[i * columns + j];
    }
  }

 private:
  std::vector<Buffer<float>> turned_;
};

Status read_arena(const SafetensorsFile& file, const Layout& layout, const std::string& prefix,
                  std::span<float> arena) {
  for (const Parameter& parameter : layout.parameters()) {
    const std::span<float> values =
        arena.subspan(static_cast<size_t>(parameter.offset), static_cast<size_t>(parameter.size()));
    if (!parameter.transposed) {
      TRY(file.read(prefix + parameter.name, parameter.shape, values));
      continue;
    }
    const std::vector<int64_t> shape{parameter.shape[1], parameter.shape[0]};
    Buffer<float> turned(parameter.size());
    TRY(file.read(prefix + parameter.name, shape, {turned.data(), values.size()}));
    ArenaTensors::transpose(turned.data(), shape[0], shape[1], values.data());
  }
  return ok();
}

// What data must have in common with those that a checkpoint was trained on: all that is known of them
// without keeping their sum. What tells most comes first.
using Facts = std::vector<std::pair<std::string, Json>>;
Facts facts_of(const Dataset& data) {
  if (data.kind() == Dataset::Kind::Tokens) {
    return {{"samples", data.size()}, {"context", data.context()}, {"vocabulary", data.vocabulary()}};
  }
  return {{"samples", data.size()},
          {"shape", data.shape()},
          {"classes", data.classes()},
          {"mean", data.mean()},
          {"deviation", data.deviation()}};
}

std::string state_name(int index) { return fmt::format("state{}.", index); }

}  // namespace

Result<Saver> Saver::open(const RunPlan& plan) {
  TRY(Checkpoints checkpoints, Checkpoints::open(plan.output_dir / "checkpoints", plan.spec.checkpoint_keep));
  return Saver(plan, std::move(checkpoints));
}

Result<std::optional<int64_t>> Saver::resume(Updater& updater) {
  std::vector<std::string> skipped;
  const std::optional<FoundCheckpoint> found = checkpoints_.newest_healthy(&skipped);
  for (const std::string& why : skipped) fmt::print(stderr, "{}; the one before is taken\n", why);
  if (!found) return std::optional<int64_t>();
  const Json state = Json::parse(found->state, nullptr, false);
  if (!state.is_object() || !state.value("data", Json::object()).is_object() ||
      state.value("seed", Json()) != plan_.spec.seed ||
      state.value("batch", Json()) != plan_.batch) {
    return Error{Code::InvalidArgument,
                 fmt::format("{} is of a training with another seed or batch", found->path.native()),
                 "the same ones, or an empty OUTPUT_DIR"};
  }
  const Json before = state.value("data", Json::object());
  for (const auto& [what, value] : facts_of(plan_.train)) {
    if (before.value(what, value) == value) continue;
    return Error{Code::InvalidArgument,
                 fmt::format("{}: the data changed: {} is {}, and {} was trained on data with {}", plan_.spec.train_data,
                             what, value.dump(), found->path.native(), before.at(what).dump()),
                 "the same data, or an empty OUTPUT_DIR"};
  }
  TRY(const SafetensorsFile model, SafetensorsFile::open(found->path / "model.safetensors"));
  TRY(const SafetensorsFile optimizer, SafetensorsFile::open(found->path / "optimizer.safetensors"));
  TRY(read_arena(model, plan_.layout, "", updater.params()));
  const int states = OptimizerKernel(plan_.spec.optimizer, plan_.layout).states();
  for (int i = 0; i < states; ++i) {
    TRY(read_arena(optimizer, plan_.layout, state_name(i), updater.state(i)));
  }
  return std::optional<int64_t>(found->step);
}

Status Saver::save(Updater& updater, int64_t steps) {
  std::vector<TensorView> model, optimizer;
  std::vector<ArenaTensors> kept;
  kept.emplace_back(plan_.layout, updater.params(), "", model);
  const int states = OptimizerKernel(plan_.spec.optimizer, plan_.layout).states();
  for (int i = 0; i < states; ++i) kept.emplace_back(plan_.layout, updater.state(i), state_name(i), optimizer);
  Json state = {{"step", steps}, {"seed", plan_.spec.seed}, {"batch", plan_.batch}};
  for (const auto& [what, value] : facts_of(plan_.train)) state["data"][what] = value;
  return checkpoints_.save(steps, {model, optimizer, state.dump() + "\n"});
}

Result<std::string> Saver::finish(Updater& updater) {
  std::vector<TensorView> model;
  const ArenaTensors kept(plan_.layout, updater.params(), "", model);
  Metadata metadata{{"format", "pt"}};
  if (plan_.train.kind() == Dataset::Kind::Images) {
    metadata["input_mean"] = fmt::format("{}", plan_.train.mean());
    metadata["input_deviation"] = fmt::format("{}", plan_.train.deviation());
  }
  const std::filesystem::path path = plan_.output_dir / "model.safetensors";
  TRY(write_model(path, model, metadata));
  return path.string();
}

}  // namespace dtrain::engine
