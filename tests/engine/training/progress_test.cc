// What is said of a training, and when.
#include "engine/training/progress.h"

#include <doctest/doctest.h>

#include <map>

#include "../scratch.h"
#include "engine/data/digits.h"

namespace dtrain::engine {
namespace {

struct Said {
  int64_t step;
  std::map<std::string, double> values;
};

// A training of 20 steps, 8 an epoch, that goes on at step 2 of it.
class Watched {
 public:
  explicit Watched(StrategySpec strategy = {}, Place place = {})
      : plan_(plan(std::move(strategy), std::move(place))) {}

  void pass(double seconds) {
    now_ += std::chrono::duration_cast<Progress::Clock::duration>(std::chrono::duration<double>(seconds));
  }
  // Seconds pass, then so many steps are known, of 10 samples each of them that is new.
  void on_step(double seconds, int64_t step, double loss, bool ends_epoch = false) {
    pass(seconds);
    const int64_t rows = 10 * (step - std::exchange(step_, step));
    progress_.on_step(step, {.loss = loss * static_cast<double>(rows), .rows = rows}, ends_epoch);
    if (!ends_epoch) return;
    pass(test_seconds);
    progress_.on_epoch(step, std::nullopt);
  }
  double test_seconds = 0;
  void on_saved(double seconds) {
    pass(seconds);
    progress_.on_saved();
  }

  // Since it was asked last.
  std::vector<Said> said() { return std::exchange(said_, {}); }

 private:
  RunPlan plan(StrategySpec strategy, Place place) const {
    REQUIRE(generate_digits(folder_.path(), {.train = 80, .test = 1, .seed = 1}).ok());
    EngineSpec spec;
    spec.train_data = folder_ / "train";
    spec.batch = 10;
    spec.steps = 20;
    spec.strategy = std::move(strategy);
    auto plan = make_plan(spec, std::move(place), folder_ / "out");
    REQUIRE(plan.ok());
    REQUIRE(plan->steps_per_epoch == 8);
    return std::move(*plan);
  }

  const CaseFolder folder_;
  const RunPlan plan_;
  Progress::Clock::time_point now_;
  int64_t step_ = 2;
  std::vector<Said> said_;
  Progress progress_{plan_, 2,
                     [this](std::string_view tag, int64_t step, double value) {
                       if (said_.empty() || said_.back().step != step) said_.push_back({step, {}});
                       said_.back().values[std::string(tag)] = value;
                     },
                     [this] { return now_; }};
};

TEST_CASE("a line comes every ten seconds, of the steps that are known by then") {
  Watched training;
  training.on_step(4, 3, 1);
  training.on_step(4, 4, 2);
  CHECK(training.said().empty());
  training.on_step(4, 5, 3);
  const auto said = training.said();
  REQUIRE(said.size() == 1);
  CHECK(said[0].step == 5);
  CHECK(said[0].values.at("loss") == doctest::Approx(2));
  CHECK(said[0].values.at("samples_per_second") == doctest::Approx(2.5));
  training.on_step(9, 6, 4);
  CHECK(training.said().empty());
  training.on_step(0.5, 8, 5, true);
  const auto at_end = training.said();
  REQUIRE(at_end.size() == 1);
  CHECK(at_end[0].values.at("loss") == doctest::Approx(14.0 / 3));
}

TEST_CASE("nothing is said before a step is known, however long that takes") {
  Watched training;
  // The first one was planned for long, and is on its way.
  training.on_step(25, 2, 0);
  CHECK(training.said().empty());
  for (int64_t step = 3; step < 6; ++step) {
    training.on_step(12, step, 7);
    const auto said = training.said();
    REQUIRE(said.size() == 1);
    CHECK(said[0].step == step);
    CHECK(said[0].values.at("loss") == doctest::Approx(7));
    CHECK(said[0].values.at("samples_per_second") == doctest::Approx(10.0 / 12));
  }
}

TEST_CASE("of what nothing was learned from there is no loss") {
  Watched training;
  training.on_step(1, 2, 0, true);
  const auto said = training.said();
  REQUIRE(said.size() == 1);
  CHECK(said[0].values == std::map<std::string, double>{{"samples_per_second", 0}});
}

TEST_CASE("while the master tests nobody learns, but for workers who don't wait for it") {
  Watched in_step;
  in_step.test_seconds = 6;
  in_step.on_step(1, 4, 3);
  in_step.on_step(2, 8, 3, true);
  in_step.on_step(1, 12, 3);
  in_step.on_step(1, 16, 3, true);
  CHECK(in_step.said().back().values.at("samples_per_second") == doctest::Approx(40));

  Watched ahead({.kind = Strategy::ParameterServer, .mode = ServerMode::Async},
                {.workers = {"a:1", "b:1"}, .ps = {"c:1"}});
  ahead.test_seconds = 6;
  ahead.on_step(1, 4, 3);
  ahead.on_step(2, 8, 3, true);
  ahead.on_step(2, 16, 3, true);
  CHECK(ahead.said().back().values.at("samples_per_second") == doctest::Approx(80 / 8.0));
}

TEST_CASE("while the master writes a checkpoint nobody learns, but for workers who don't wait for it") {
  Watched in_step;
  in_step.on_step(1, 4, 3);
  in_step.on_saved(6);
  in_step.on_step(2, 8, 3, true);
  CHECK(in_step.said().back().values.at("samples_per_second") == doctest::Approx(40 / 2.0));
  in_step.on_saved(6);
  in_step.on_step(5, 16, 3, true);
  CHECK(in_step.said().back().values.at("samples_per_second") == doctest::Approx(80 / 5.0));

  Watched ahead({.kind = Strategy::ParameterServer, .mode = ServerMode::Async},
                {.workers = {"a:1", "b:1"}, .ps = {"c:1"}});
  ahead.on_step(1, 4, 3);
  ahead.on_saved(6);
  ahead.on_step(2, 8, 3, true);
  CHECK(ahead.said().back().values.at("samples_per_second") == doctest::Approx(40 / 8.0));
}

}  // namespace
}  // namespace dtrain::engine
