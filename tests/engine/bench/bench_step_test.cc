#include "engine/bench/bench_step.h"

#include <doctest/doctest.h>

namespace dtrain::engine {
namespace {

TEST_CASE("operations of a sample are those of its products") {
  const SampleShape image{.channels = 1, .height = 28, .width = 28, .classes = 10};
  CHECK(operations_per_sample(MlpSpec{{128}}, image) == 4 * 784 * 128 + 6 * 128 * 10);
  CHECK(operations_per_sample(LenetSpec{}, image) == 4.0 * 6 * 25 * 28 * 28 +
                                                         6.0 * 16 * 6 * 25 * 10 * 10 +
                                                         6.0 * (400 * 120 + 120 * 84 + 84 * 10));
  const GptSpec gpt{.layers = 1, .heads = 1, .width = 2, .context = 3, .vocabulary = 5};
  CHECK(operations_per_sample(gpt, {.context = 3, .vocabulary = 5}) ==
        3 * (6 * (12 * 4 + 5 * 2) + 6 * 2 * 3));
}

TEST_CASE("a workload that is not there is refused by name") {
  const Status status =
      bench_step({.program = "", .names = {"gtp"}}, nullptr, [](const StepRate&) {});
  REQUIRE(!status.ok());
  CHECK(status.error().code == Code::InvalidArgument);
  CHECK(status.error().message.find("gtp") != std::string::npos);
  CHECK(status.error().hint.find("gpt-0.81M") != std::string::npos);
}

TEST_CASE("whole trainings are measured") {
  std::vector<StepRate> rates;
  const StepOptions options{.program = BIN_DIR "/dtrain-engine",
                            .names = {"mlp-128-two-workers"},
                            .rounds = 1,
                            .seconds = 0.05};
  const Status status =
      bench_step(options, nullptr, [&](const StepRate& rate) { rates.push_back(rate); });
  REQUIRE_MESSAGE(status.ok(), (status.ok() ? "" : status.error().message + status.error().hint));
  REQUIRE(rates.size() == 1);
  CHECK(rates[0].workload.workers == 2);
  CHECK(rates[0].threads >= 2);
  CHECK(rates[0].samples_per_second > 0);
  CHECK(rates[0].operations_per_second() > rates[0].samples_per_second);
  CHECK(rates[0].peak > 0);
  CHECK(rates[0].parameters > 4 * 784 * 128);
  CHECK(!rates[0].peer_samples_per_second);
}

}  // namespace
}  // namespace dtrain::engine
