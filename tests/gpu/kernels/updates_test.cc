// What becomes of a gradient: its norm, and the parameters by it.
#include <doctest/doctest.h>

#include <cmath>
#include <numeric>

#include "engine/buffer.h"
#include "engine/cuda/device_kernels.h"
#include "engine/optimizer.h"
#include "tests/gpu/device_array.h"
#include "tests/gpu/kernels/random_arrays.h"

namespace dtrain::engine::cuda {
namespace {

TEST_CASE("updates have the bits of the CPU's") {
  const auto context = test_context();
  if (!context) return;
  Random random;
  CAPTURE(random.seed);
  OptimizerSpec spec;
  SUBCASE("plain") {}
  SUBCASE("momentum and decay") { spec = {.momentum = 0.9, .weight_decay = 0.01}; }
  SUBCASE("nesterov") { spec = {.momentum = 0.9, .nesterov = true}; }
  SUBCASE("adam") { spec = {.kind = Optimizer::Adam, .learning_rate = 0.001, .weight_decay = 0.1}; }
  SUBCASE("adamw") { spec = {.kind = Optimizer::AdamW, .learning_rate = 0.001, .weight_decay = 0.1}; }
  Layout layout;
  layout.add({.name = "w", .shape = {1003}});
  const OptimizerKernel optimizer(spec, layout);
  const int64_t count = layout.size();
  std::vector<float> params = to<float>(random.normal(count)), grads = to<float>(random.normal(count, 20));
  std::vector<float> first(params.size()), second(params.size());
  Array<float> d_params(*context, params), d_grads(*context, grads), d_first(*context, first), d_second(*context, second);
  Array<Bfloat16> copy(*context, params.size());
  Array<Totals> totals(*context, std::vector<Totals>{{1.5, 40, 0}});
  Array<StepScale> scale(*context, std::vector<StepScale>(1));
  const cudaStream_t stream = context->stream();
  for (int64_t step = 1; step <= 3; ++step) {
    const OptimizerStep at{.learning_rate = spec.learning_rate, .gradient_scale = 1.0 / 40, .step = step};
    optimizer.update({0, count}, at, params.data(), grads.data(), first.data(), second.data());
    step_scale(stream, totals.data(), 0, scale.data());
    optimizer.for_runs({0, count}, [&](Range range, bool decays) {
      const int64_t b = range.begin;
      if (spec.kind == Optimizer::Sgd) {
        const SgdConstants c = optimizer.sgd(at, decays);
        update_sgd(stream, range.size(), {c.decay, c.momentum, c.minus_rate, spec.nesterov}, scale.data(),
                   d_params.data() + b, d_grads.data() + b, optimizer.states() > 0 ? d_first.data() + b : nullptr,
                   copy.data() + b);
      } else {
        const AdamConstants c = optimizer.adam(at, decays);
        update_adam(stream, range.size(),
                    {c.l2, c.shrink, c.take1, c.beta2, c.take2, c.root_correction, c.epsilon, c.minus_step_size},
                    scale.data(), d_params.data() + b, d_grads.data() + b, d_first.data() + b, d_second.data() + b,
                    copy.data() + b);
      }
    });
  }
  CHECK(d_params.read() == params);
  if (optimizer.states() > 0) CHECK(d_first.read() == first);
  if (optimizer.states() > 1) CHECK(d_second.read() == second);
  CHECK(back(copy.read()) == back(to<Bfloat16>(back(params))));
}

TEST_CASE("squares of more blocks than a block has threads are all added") {
  const auto context = test_context();
  if (!context) return;
  std::vector<double> sums(2500);
  std::iota(sums.begin(), sums.end(), 0);
  Array<double> squares(*context, sums);
  Array<Totals> totals(*context, std::vector<Totals>{{1, 2, 3, 4}});
  add_squares(context->stream(), 2500, squares.data(), totals.data());
  CHECK(totals.read()[0].squares == 4 + 2500 * 2499 / 2);
}

TEST_CASE("nothing is updated when a number is none, and clipping takes from the scale") {
  const auto context = test_context();
  if (!context) return;
  const cudaStream_t stream = context->stream();
  const int64_t count = 3 * 4096 + 100;
  std::vector<float> grads(static_cast<size_t>(count), 2);
  const double nan = std::nan("");
  const auto scale_of = [&](const Totals& totals, double clip) {
    Array<float> d_grads(*context, grads);
    Array<double> squares(*context, size_t{4});
    Array<Totals> d_totals(*context, std::vector<Totals>{totals});
    Array<StepScale> scale(*context, std::vector<StepScale>(1));
    block_squares(stream, count, d_grads.data(), squares.data());
    CHECK(squares.read() == std::vector<double>{4 * 4096, 4 * 4096, 4 * 4096, 400});
    add_squares(stream, 4, squares.data(), d_totals.data());
    CHECK(d_totals.read()[0].squares == totals.squares + 4 * static_cast<double>(count));
    step_scale(stream, d_totals.data(), clip, scale.data());
    return scale.read()[0];
  };
  CHECK(scale_of({1, 10, 0}, 0).scale == 0.1f);
  CHECK(scale_of({1, 10, 0}, 1000).scale == 0.1f);
  const double norm = 2 * std::sqrt(static_cast<double>(count)) / 10;
  CHECK(scale_of({1, 10, 0}, 3).scale == doctest::Approx(0.1 * 3 / norm).epsilon(1e-5));
  CHECK(scale_of({1, 10, 0, 12 * static_cast<double>(count)}, 3).scale == doctest::Approx(0.05 * 3 / norm).epsilon(1e-5));
  CHECK(scale_of({1, 10, 0}, 3).finite == 1);
  CHECK(scale_of({nan, 10, 0}, 3).finite == 0);
  CHECK(scale_of({INFINITY, 10, 0}, 0).finite == 0);

  Array<StepScale> broken(*context, std::vector<StepScale>{{1, 0}});
  Array<float> params(*context, grads), d_grads(*context, grads);
  update_sgd(stream, count, {0, 0, -1, false}, broken.data(), params.data(), d_grads.data(), nullptr, nullptr);
  CHECK(params.read() == grads);
}

}  // namespace
}  // namespace dtrain::engine::cuda
