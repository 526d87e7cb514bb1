// A Rank together with what to ask while it is waited for, as the Shares on GPUs take it; and what is the same
// in making any of them.
#pragma once

#include <functional>

#include "engine/cuda/kernels.h"
#include "engine/cuda/rank.h"
#include "engine/training/share.h"

namespace dtrain::engine::cuda {

// For a wait in `step` that is `doing` something: an error ends it.
using Watch = std::function<std::function<Status()>(int64_t step, const char* doing)>;

struct WaitedRank {
  Rank& rank;
  Watch watch;
};

// InvalidArgument: a model that GPUs can't take. ResourceExhausted: not enough memory.
template <class Make>
Result<std::unique_ptr<Share>> make_on_device(const RunPlan& plan, Rank& rank, Make make) {
  rank.device().use();
  if (const auto* gpt = std::get_if<GptSpec>(&plan.spec.model); gpt != nullptr && gpt->width / gpt->heads > kMaxHeadWidth) {
    return Error{Code::InvalidArgument,
                 fmt::format("heads of {} are wider than the {} that attention on GPUs takes", gpt->width / gpt->heads,
                             kMaxHeadWidth),
                 "more heads"};
  }
  try {
    return make();
  } catch (const std::bad_alloc&) {
    return Error{Code::ResourceExhausted,
                 fmt::format("{} has not enough memory for the activations of its part of a batch", rank.device().name()),
                 plan.spec.strategy.kind == Strategy::Pipeline ? "more micro-batches: below pipeline"
                                                               : "a smaller micro-batch: the batch is then computed in pieces"};
  }
}

}  // namespace dtrain::engine::cuda
