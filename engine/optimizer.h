// The update of parameters from a sum of gradients: PyTorch's formulas, in fp32, element by
// element.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "engine/layout.h"
#include "schema/engine_spec.h"

namespace dtrain::engine {

// What an update is made of, in fp32; `minus_` is what is added times the direction.
struct SgdConstants {
  float scale, decay, momentum, minus_rate;
};
struct AdamConstants {
  float scale;
  float l2;      // Adam's decay, part of the gradient
  float shrink;  // AdamW's decay, a factor of the parameter
  float take1;   // 1 - beta1
  float beta2, take2;
  float root_correction;  // sqrt(1 - beta2^step)
  float epsilon, minus_step_size;
};

struct OptimizerStep {
  double learning_rate = 0;
  double gradient_scale = 1;  // of the sum of gradients: 1 / batch, times what clipping takes away
  int64_t step = 1;           // the first is 1
};

// An OptimizerKernel knows the constants of one optimiser and which elements decay.
// Immutable: any number of threads update disjoint ranges at once.
// Promises: an element's new value depends on that element alone, with the same bits wherever
// ranges are cut and whatever vectors the processor has.
class OptimizerKernel {
 public:
  OptimizerKernel(const OptimizerSpec& spec, const Layout& layout);

  // Arenas of state: 0; 1: momentum; 2: Adam's moments. They begin as zeros.
  int states() const;

  // `range` is of the layout; the pointers are to its first element in each arena. States beyond
  // states() are not touched and may be null.
  void update(Range range, const OptimizerStep& step, float* params, const float* grads,
              float* state0, float* state1) const;

  // The same of a block of one parameter, for whoever makes many in a step.
  struct Block {
    int64_t width, rows = 1;
    int64_t stride = 0, gradient_stride = 0;  // from row to row
  };
  struct Constants {
    // By whether elements decay; of the one optimiser.
    std::array<SgdConstants, 2> sgd = {};
    std::array<AdamConstants, 2> adam = {};
  };
  Constants constants(const OptimizerStep& step) const;
  bool decays(int64_t at) const;  // the element there
  void update(const Block& block, bool decays, const Constants& of, float* params, const float* grads, float* state0,
              float* state1) const;

  // The runs of `range` of which all elements decay or none does, in order; and the constants of a step.
  void for_runs(Range range, const std::function<void(Range, bool decays)>& visit) const;
  SgdConstants sgd(const OptimizerStep& step, bool decays) const;
  AdamConstants adam(const OptimizerStep& step, bool decays) const;

 private:
  void set(Constants& of, const OptimizerStep& step, bool decays) const;

  struct Run {  // up to the begin of the next, or the end of the arena
    int64_t begin;
    bool decays;
  };
  OptimizerSpec spec_;
  std::vector<Run> runs_;  // by begin, the first at 0
};

}  // namespace dtrain::engine
