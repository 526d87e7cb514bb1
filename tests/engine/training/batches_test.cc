#include "engine/training/batches.h"

#include <doctest/doctest.h>

#include "tests/engine/scratch.h"

namespace dtrain::engine {
namespace {

// Reads the second half of each batch, and keeps what it was asked about.
class SecondHalf : public Share {
 public:
  Range reads(int64_t batch) const override {
    asked.push_back(batch);
    return {batch / 2, batch};
  }
  Result<Outcome> train(const Batch&, int64_t) override { return Outcome{}; }
  Result<Outcome> evaluate(Range, int64_t) override { return Outcome{}; }

  mutable std::vector<int64_t> asked;
};

class Text {
 public:
  // 24 samples, 10 a step: an epoch is 10, 10 and 4.
  Text() {
    put(folder_ / "text", std::string(24 * 8 + 1, 'x'));
    EngineSpec spec;
    spec.model = GptSpec{.layers = 1, .heads = 1, .width = 8, .context = 8};
    spec.train_data = folder_ / "text";
    spec.batch = 10;
    spec.epochs = 2;
    auto made = make_plan(spec, {}, folder_ / "out");
    REQUIRE_MESSAGE(made.ok(), made.error().message);
    plan_.emplace(std::move(*made));
    REQUIRE(plan_->steps == 6);
  }
  const RunPlan& plan() const { return *plan_; }
  std::vector<uint32_t> sampled(int64_t step) const {
    return Sampler(plan_->sampler()).batch(step / 3, step % 3).samples();
  }

 private:
  const CaseFolder folder_;
  std::optional<RunPlan> plan_;
};

Range everything(int64_t batch) { return {0, batch}; }

TEST_CASE("each step has the sampler's batch, and the next one is asked for") {
  const Text text;
  const SecondHalf share;
  Batches batches(text.plan(), share, everything);
  for (int64_t step = 0; step < 6; ++step) CHECK(batches.of(step).samples() == text.sampled(step));
  CHECK(share.asked == std::vector<int64_t>{10, 4, 10, 10, 4});  // those of the steps 1 to 5
}

TEST_CASE("who goes on elsewhere has the batch of that step") {
  const Text text;
  const SecondHalf share;
  Batches batches(text.plan(), share, everything);
  for (const int64_t step : {1, 4, 2, 3, 5, 4, 5}) CHECK(batches.of(step).samples() == text.sampled(step));
}

TEST_CASE("of a batch that is dealt out in parts each has its own, several of one batch one after the other") {
  const Text text;
  const SecondHalf share;
  int64_t part = 0;
  Batches batches(text.plan(), share, [&](int64_t batch) {
    return Range{batch * part / 3, batch * (part + 1) / 3};
  });
  std::vector<uint32_t> seen, sampled;
  for (int64_t step = 0; step < 6; ++step) {
    for (part = 0; part < 3; ++part) {
      const std::vector<uint32_t> mine = batches.of(step).samples();
      seen.insert(seen.end(), mine.begin(), mine.end());
    }
    const std::vector<uint32_t> all = text.sampled(step);
    sampled.insert(sampled.end(), all.begin(), all.end());
  }
  CHECK(seen == sampled);
  CHECK(share.asked == std::vector<int64_t>{3, 1, 3, 3, 1});  // once a step, of a part
}

}  // namespace
}  // namespace dtrain::engine
