// A Share is what one participant computes of each batch: it reads its samples, and leaves the sums of
// their gradients by node in the updater's arenas. Owner and thread: a participant.
#pragma once

#include <memory>

#include "engine/data/sampler.h"
#include "engine/strategies/updater.h"
#include "engine/training/run_plan.h"

namespace dtrain::engine {

class Share {
 public:
  virtual ~Share() = default;

  // Which of a batch of so many samples it reads.
  virtual Range reads(int64_t batch) const = 0;
  // `batch`: all samples of the step, or of the part that was dealt. Of what several compute together, one knows the outcome; it is
  // nothing for the others.
  virtual Result<Outcome> train(const Batch& batch, int64_t step) = 0;
  // Samples [range) of the test set.
  virtual Result<Outcome> evaluate(Range range, int64_t step) = 0;
};

// On the CPU, as the participant's seat asks. The two outlive it.
Result<std::unique_ptr<Share>> make_share(const RunPlan& plan, Updater& updater, int me);

// All leaves of nodes in a row.
inline Range leaves_of(const std::vector<Node>& nodes) {
  return {nodes.front().leaves().begin, nodes.back().leaves().end};
}

}  // namespace dtrain::engine
