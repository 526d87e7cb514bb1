// Where a training starts: at the newest healthy checkpoint of its OUTPUT_DIR; without one, at what
// `checkpoint: {from}` names; else with weights as the seed makes them.
#pragma once

#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "engine/formats/checkpoint.h"
#include "engine/strategies/updater.h"
#include "engine/training/run_plan.h"
#include "engine/training/training_state.h"

namespace dtrain::engine {

// The master's alone, made before the others are met, so that what is refused is refused by one process.
class Start {
 public:
  // Reads no tensor yet, but an error says all that can be wrong: nothing healthy where `from` points,
  // another model, optimizer, seed, batch or data, or no step left to train.
  static Result<Start> find(const RunPlan& plan);
  // The same, for as long; then it goes on behind until read(), whose error is then what find() had said. All of a
  // checkpoint is read to see whether it is whole: the others must not wait for that before they are met.
  static Result<Start> find_within(const RunPlan& plan, double seconds);

  // Into the arenas of parameters and state. Once.
  Status read(const RunPlan& plan, Updater& updater);
  // That these have seen; as the rest, after read().
  int64_t step() const { return checkpoint_ ? checkpoint_->step : 0; }
  int64_t updates() const { return checkpoint_ ? updates_of(*checkpoint_) : 0; }

  // What it says about itself, a line; empty for weights of the seed's.
  std::string line() const;

 private:
  // Opens it, and checks that it fits.
  Status take(const RunPlan& plan, const FoundCheckpoint& found);
  // Becomes what the search came to.
  Status take_found();

  std::optional<FoundCheckpoint> checkpoint_;
  // Of the checkpoint, until it is read: who writes there may delete it meanwhile.
  std::optional<SafetensorsFile> model_, optimizer_;
  std::filesystem::path weights_;  // a file of tensors alone; empty: none
  bool is_own_ = false;            // the checkpoint is of OUTPUT_DIR
  std::future<Result<std::shared_ptr<Start>>> search_;  // while it goes on behind
};

}  // namespace dtrain::engine
