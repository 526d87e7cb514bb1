#include "engine/training/training_state.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "engine/optimizer.h"

namespace dtrain::engine {

namespace {

using Json = nlohmann::json;
// What tells most comes first.
using Facts = std::vector<std::pair<std::string, Json>>;

Facts facts_of(const Dataset& data) {
  if (data.kind() == Dataset::Kind::Tokens) {
    return {{"samples", data.size()},
            {"context", data.context()},
            {"vocabulary", data.vocabulary()},
            {"checksum", fmt::format("{:08x}", data.checksum())}};
  }
  return {{"samples", data.size()},
          {"shape", data.shape()},
          {"classes", data.classes()},
          {"mean", data.mean()},
          {"deviation", data.deviation()},
          {"checksum", fmt::format("{:08x}", data.checksum())}};
}

// What of a model shows in the shape of no tensor.
Facts facts_of(const ModelSpec& model) {
  if (const auto* gpt = std::get_if<GptSpec>(&model)) return {{"heads", gpt->heads}};
  if (const auto* lenet = std::get_if<LenetSpec>(&model)) return {{"padding", lenet->padding}, {"pool", lenet->pool}};
  return {};
}

// Two that keep the same are told apart by their kind, for momentum is no mean.
Json optimizer_of(const RunPlan& plan) {
  const int states = OptimizerKernel(plan.spec.optimizer, plan.layout).states();
  const bool sgd = plan.spec.optimizer.kind == Optimizer::Sgd;
  if (sgd) return states == 0 ? "sgd" : "sgd with momentum";
  return plan.spec.optimizer.kind == Optimizer::Adam ? "adam" : "adamw";
}

std::string text(const Json& json) { return json.is_string() ? json.get<std::string>() : json.dump(); }

Error refused(const FoundCheckpoint& found, const std::string& what) {
  return {Code::InvalidArgument, fmt::format("{} is of a training with {}", found.path.native(), what),
          "the same here; or, for its weights alone, 'checkpoint: {from: .../model.safetensors}'"};
}

}  // namespace

std::string state_prefix(int index) { return fmt::format("state{}.", index); }

std::string state_of(const RunPlan& plan, int64_t leaves, int64_t steps, int64_t updates) {
  Json state = {{"step", steps},
                {"updates", updates},
                {"seed", plan.spec.seed},
                {"batch", plan.batch},
                {"epoch-samples", plan.spec.epoch_samples},
                {"optimizer", optimizer_of(plan)},
                {"instructions", plan.instructions()},
                {"leaves", leaves}};
  for (const auto& [what, value] : facts_of(plan.train)) state["data"][what] = value;
  for (const auto& [what, value] : facts_of(plan.spec.model)) state["model"][what] = value;
  return state.dump() + "\n";
}

int64_t updates_of(const FoundCheckpoint& found) {
  const Json state = Json::parse(found.state, nullptr, false);
  const Json updates = state.is_object() ? state.value("updates", Json()) : Json();
  return updates.is_number_integer() ? updates.get<int64_t>() : found.step;
}

Status check_state(const RunPlan& plan, const FoundCheckpoint& found) {
  const Json state = Json::parse(found.state, nullptr, false);
  if (!state.is_object() || !state.value("data", Json::object()).is_object() ||
      !state.value("model", Json::object()).is_object() || !state.value("instructions", Json("")).is_string() ||
      !state.value("leaves", Json(0)).is_number_integer()) {
    return Error{Code::InvalidArgument, fmt::format("{}: its state.json can't be read", found.path.native()), ""};
  }
  const Facts own{{"seed", plan.spec.seed},
                  {"batch", plan.batch},
                  {"epoch-samples", plan.spec.epoch_samples},
                  {"optimizer", optimizer_of(plan)}};
  for (const auto& [what, value] : own) {
    // Before there was such an entry nobody looked.
    const bool needed = what == "seed" || what == "batch";
    const Json before = state.value(what, needed ? Json() : value);
    if (before == value) continue;
    if (what == "optimizer") {
      return refused(found, fmt::format("{}, and this one has {}", text(before), text(value)));
    }
    if (what == "epoch-samples") {
      const auto samples = [](const Json& json) {
        return json == 0 ? std::string("all samples") : fmt::format("{} samples", json.dump());
      };
      return refused(found, fmt::format("epochs of {}, and this one's have {}", samples(before), samples(value)));
    }
    return refused(found, fmt::format("another seed or batch: {} {}, and this one has {}", what, text(before), text(value)));
  }
  const Json model = state.value("model", Json::object());
  for (const auto& [what, value] : facts_of(plan.spec.model)) {
    const Json then = model.value(what, value);
    if (then == value) continue;
    return refused(found, fmt::format("a model of {} {}, and this one has {}", what, text(then), text(value)));
  }
  const Json before = state.value("data", Json::object());
  for (const auto& [what, value] : facts_of(plan.train)) {
    const Json then = before.value(what, value);
    if (then == value) continue;
    return Error{Code::InvalidArgument,
                 fmt::format("{}: the data changed: {} is {}, and {} was trained on data with {}",
                             plan.spec.train_data, what, text(value), found.path.native(), text(then)),
                 "the same data; or, for its weights alone, 'checkpoint: {from: .../model.safetensors}'"};
  }
  return ok();
}

std::string other_bits(const RunPlan& plan, int64_t leaves, const FoundCheckpoint& found) {
  const Json state = Json::parse(found.state);
  const auto how = [](const std::string& instructions, int64_t count) {
    return fmt::format("{} and sums of {} leaves", instructions, count);
  };
  // Before there were such entries nobody looked.
  const std::string own = how(plan.instructions(), leaves);
  const std::string before = how(state.value("instructions", plan.instructions()), state.value("leaves", leaves));
  if (before == own) return "";
  return fmt::format("{} was computed with {}, what follows is with {}: its last bits may differ", found.path.native(),
                     before, own);
}

}  // namespace dtrain::engine
