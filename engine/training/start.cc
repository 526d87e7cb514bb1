#include "engine/training/start.h"

#include <unistd.h>

#include <chrono>
#include <utility>

#include "engine/optimizer.h"
#include "engine/training/arena_tensors.h"
#include "engine/training/initial.h"
#include "engine/training/training_state.h"

namespace dtrain::engine {

namespace {

namespace fs = std::filesystem;

constexpr const char* kHint =
    "'checkpoint: {from}' names an OUTPUT_DIR, a checkpoint in it, or a model.safetensors";

std::string host_name() {
  char name[256] = "";
  (void)::gethostname(name, sizeof name - 1);
  return name[0] == '\0' ? "this host" : name;
}

// `instead`: what is taken, if not the one before.
void say(const std::vector<std::string>& skipped, const char* instead = "the one before") {
  for (size_t i = 0; i < skipped.size(); ++i) {
    fmt::print(stderr, "{}; {} is taken\n", skipped[i], i + 1 < skipped.size() ? "the one before" : instead);
  }
}

// A checkpoint, a folder of them, or an OUTPUT_DIR, which has such a folder.
Result<FoundCheckpoint> find_in(const fs::path& path) {
  std::error_code unknown;
  if (const auto step = checkpoint_step(path)) {
    TRY(std::string state, check_checkpoint(path));
    return FoundCheckpoint{*step, path, std::move(state)};
  }
  const fs::path below = path / kEngineCheckpoints;
  std::vector<std::string> skipped;
  auto found = newest_checkpoint(fs::is_directory(below, unknown) ? below : path, &skipped);
  if (found) {
    say(skipped);
    return std::move(*found);
  }
  if (skipped.empty()) {
    return Error{Code::NotFound, fmt::format("there is no checkpoint in {} on {}", path.native(), host_name()), kHint};
  }
  return Error{Code::DataLoss, fmt::format("no checkpoint in {} is whole: {}", path.native(), skipped.front()), ""};
}

// It would be the same however often it is tried.
Error as_refusal(Error error) {
  if (error.code == Code::DataLoss || error.code == Code::PermissionDenied) error.code = Code::InvalidArgument;
  return error;
}

}  // namespace

Status Start::take(const RunPlan& plan, const FoundCheckpoint& found) {
  TRY(model_, SafetensorsFile::open(found.path / kModelFile));
  TRY(optimizer_, SafetensorsFile::open(found.path / kOptimizerFile));
  TRY(check_arena(*model_, plan.layout, ""));
  TRY(check_state(plan, found));
  const int states = OptimizerKernel(plan.spec.optimizer, plan.layout).states();
  for (int i = 0; i < states; ++i) TRY(check_arena(*optimizer_, plan.layout, state_prefix(i)));
  checkpoint_ = found;
  return ok();
}

Result<Start> Start::find(const RunPlan& plan) {
  Start start;
  std::vector<std::string> skipped;
  // From the beginning only where nothing is known to lie there, and not because a disk doesn't answer.
  TRY(check_listed(plan.output_dir / kEngineCheckpoints));
  auto found = newest_checkpoint(plan.output_dir / kEngineCheckpoints, &skipped);
  start.is_own_ = found.has_value();
  say(skipped, start.is_own_          ? "the one before"
               : plan.start.empty() ? "there is none before, so that the beginning"
                                      : "there is none before, so that what 'checkpoint: {from}' names");
  if (!start.is_own_ && !plan.start.empty()) {
    std::error_code unknown;
    const fs::file_type type = fs::status(plan.start, unknown).type();
    if (type == fs::file_type::not_found) {
      return Error{Code::NotFound, fmt::format("{} is not there on {}", plan.start.native(), host_name()), kHint};
    }
    if (type == fs::file_type::directory) {
      auto other = find_in(plan.start);
      if (!other.ok()) return as_refusal(std::move(other).error());
      found = std::move(*other);
    } else {
      auto model = SafetensorsFile::open(plan.start);
      if (!model.ok()) return as_refusal(std::move(model).error());
      TRY(check_arena(*model, plan.layout, ""));
      start.weights_ = plan.start;
    }
  }
  if (!found) return start;
  if (Status fits = start.take(plan, *found); !fits.ok()) {
    std::error_code unknown;
    // Another training that writes there deletes it: there is a newer one.
    if (!start.is_own_ && !fs::exists(found->path, unknown)) return find(plan);
    return as_refusal(std::move(fits).error());
  }
  if (!start.is_own_ && start.checkpoint_->step >= plan.steps) {
    return Error{Code::InvalidArgument,
                 fmt::format("{} has {} steps behind it, and this training is of {} in all", start.checkpoint_->path.native(),
                             start.checkpoint_->step, plan.steps),
                 "more epochs, such as --set train.engine.epochs=..., leave something to do"};
  }
  return start;
}

Result<Start> Start::find_within(const RunPlan& plan, double seconds) {
  Start start;
  start.search_ = std::async(std::launch::async, [&plan]() -> Result<std::shared_ptr<Start>> {
    TRY(Start found, find(plan));
    return std::make_shared<Start>(std::move(found));
  });
  if (start.search_.wait_for(std::chrono::duration<double>(seconds)) == std::future_status::ready) TRY(start.take_found());
  return start;
}

Status Start::take_found() {
  TRY(const std::shared_ptr<Start> found, search_.get());
  *this = std::move(*found);
  return ok();
}

Status Start::read(const RunPlan& plan, Updater& updater) {
  if (search_.valid()) TRY(take_found());
  if (!weights_.empty()) {
    TRY(const SafetensorsFile model, SafetensorsFile::open(weights_));
    TRY(read_arena(model, plan.layout, "", updater.params()));
    for (float& weight : updater.params()) weight += 0.0f;   // no zero is negative: sparse_gemm.h
    return ok();
  }
  if (!checkpoint_) {
    initialise(plan.layout, plan.spec.seed, updater.params());
    return ok();
  }
  if (const std::string note = other_bits(plan, updater.leaves(), *checkpoint_); !note.empty()) {
    fmt::print(stderr, "{}\n", note);
  }
  const std::optional<SafetensorsFile> model = std::exchange(model_, {}), optimizer = std::exchange(optimizer_, {});
  TRY(read_arena(*model, plan.layout, "", updater.params()));
  const int states = OptimizerKernel(plan.spec.optimizer, plan.layout).states();
  for (int i = 0; i < states; ++i) TRY(read_arena(*optimizer, plan.layout, state_prefix(i), updater.state(i)));
  return ok();
}

std::string Start::line() const {
  if (!weights_.empty()) return fmt::format("weights_from={}", weights_.native());
  if (!checkpoint_) return "";
  const std::string step = fmt::format("resumed_at_step={}", checkpoint_->step);
  return is_own_ ? step : fmt::format("{} from={}", step, checkpoint_->path.native());
}

}  // namespace dtrain::engine
