// Training: the loop. Each participant runs it on a thread of its own; what one of them does besides
// computing (printing, saving) the master does while the others wait.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "engine/formats/event_file.h"
#include "engine/strategies/updater.h"
#include "engine/training/end_request.h"
#include "engine/training/progress.h"
#include "engine/training/run_plan.h"
#include "engine/training/saver.h"
#include "engine/training/share.h"
#include "engine/training/start.h"

namespace dtrain::engine {

class Training {
 public:
  using MakeShare = std::function<Result<std::unique_ptr<Share>>(const RunPlan&, Updater&, int me)>;
  // The master's start; the others take what it distributes.
  Training(const RunPlan& plan, Start& start, Updater& updater, MakeShare make_share = &engine::make_share)
      : plan_(plan), start_(start), updater_(updater), make_share_(std::move(make_share)) {}

  // All threads of this process, to the end. Cancelled: asked by TERM it has ended before, and a checkpoint has all
  // that was done.
  Status run();

 private:
  Status run_participant(int me);
  Result<int64_t> begin(int me);
  Result<Outcome> evaluate(int me, int64_t step, Share& share);
  Status save(int me, int64_t step, bool is_last);
  bool is_master(int me) const { return plan_.place.is_master() && me == updater_.first(); }

  const RunPlan& plan_;
  Start& start_;
  Updater& updater_;
  const MakeShare make_share_;
  std::optional<Saver> saver_;        // the master's
  std::optional<Progress> progress_;  // the master's
  std::optional<EventFile> events_;   // the master's
  std::atomic<int64_t> ended_early_at_ = -1;
};

}  // namespace dtrain::engine
