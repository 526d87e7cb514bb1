#include "engine/bench/bench_gpu_step.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace dtrain::engine {
namespace {

TEST_CASE("what GPUs are timed with is GPT-2 of 124 million parameters, as published") {
  const auto& all = gpu_step_workloads();
  const auto gpt = std::ranges::find(all, "gpt-124M", &Workload::name);
  REQUIRE(gpt != all.end());
  const auto& spec = std::get<GptSpec>(gpt->model);
  int64_t parameters = 0;
  const Layout layout = layout_of(spec, {.context = spec.context, .vocabulary = spec.vocabulary});
  for (const Parameter& each : layout.parameters()) parameters += each.size();
  CHECK(parameters == 124'439'808);
}

TEST_CASE("a bench of GPUs says what there is when it is asked for something else") {
  const Status status = bench_gpu_step({.program = "/nonexistent", .names = {"gpt-1B"}}, nullptr, [](const GpuStepRate&) {});
  REQUIRE(!status.ok());
  CHECK(status.error().message == "no workload begins with gpt-1B");
  CHECK(status.error().hint == "there are mlp-128, mlp-512, lenet, gpt-124M");
}

}  // namespace
}  // namespace dtrain::engine
