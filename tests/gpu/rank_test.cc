// What a Rank tells of its steps.
#include "engine/cuda/rank.h"

#include <limits>

#include "tests/gpu/device_trainings.h"

namespace dtrain::engine {
namespace {

TEST_CASE("each of two steps on their way is told as it was, and once") {
  if (!has_device()) return;
  const Folder folder;
  auto spec = engine_spec_from_json(spec_of(folder, On::Device, {{"clip", 1.0}}).dump());
  REQUIRE(spec.ok());
  const auto plan = make_plan(std::move(*spec), {}, folder.path / "out", 1);
  REQUIRE(plan.ok());
  auto opened = cuda::Rank::open(*plan, {}, 0, 1);
  if (!opened.ok()) FAIL(opened.error().message);
  cuda::Rank& rank = **opened;
  CHECK(rank.outcome_of(-1, {})->rows == 0);  // before the first one

  const auto enqueue = [&](int64_t step, const cuda::Totals& totals) {
    rank.device().copy_to_device(&totals, 1, rank.context().totals());
    REQUIRE(rank.update({.step = step, .learning_rate = 0.1}, step).ok());
  };
  const double none = std::numeric_limits<double>::quiet_NaN();
  const auto check_right = [&](int64_t step, double rows) {
    const auto outcome = rank.outcome_of(step, {});
    REQUIRE(outcome.ok());
    CHECK(outcome->rows == static_cast<int64_t>(rows));
    CHECK(rank.outcome_of(step, {})->rows == 0);
  };
  const auto check_wrong = [&](int64_t step, const std::string& what) {
    const auto outcome = rank.outcome_of(step, {});
    REQUIRE(!outcome.ok());
    CHECK(outcome.error().message == what);
  };
  // All is done before the host looks.
  enqueue(0, {.loss = none, .rows = 3});
  enqueue(1, {.loss = 4, .rows = 5});
  REQUIRE(rank.device().wait().ok());
  check_wrong(0, "the loss is nan in step 1");
  check_right(1, 5);
  enqueue(2, {.loss = 4, .rows = 6});
  enqueue(3, {.loss = 4, .rows = 7, .squares = none});
  REQUIRE(rank.device().wait().ok());
  check_right(2, 6);
  check_wrong(3, "a gradient is not finite in step 4");
  // Or nothing perhaps.
  enqueue(4, {.loss = 4, .rows = 8});
  enqueue(5, {.loss = 4, .rows = 9});
  check_right(4, 8);
  check_right(5, 9);
}

}  // namespace
}  // namespace dtrain::engine
