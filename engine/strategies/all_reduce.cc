#include "engine/strategies/all_reduce.h"

#include <array>
#include <cmath>

#include "engine/norm.h"
#include "engine/strategies/not_finite.h"
#include "engine/strategies/notes.h"

namespace dtrain::engine {

namespace {

// A network of 1 Gbit/s takes 8 ms for it, and each bucket costs some system calls.
constexpr double kBucketMb = 1;

Overlap overlap_of(const EngineSpec& spec) {
  const double mb = spec.strategy.bucket_mb > 0 ? spec.strategy.bucket_mb : kBucketMb;
  return {.bucket_elements = std::max<int64_t>(1, std::llround(mb * 1e6 / sizeof(float))),
          .deadline_seconds = spec.deadline_seconds};
}

// Where every gradient comes once a step, from a model on the CPU, and no norm has to be known before.
bool updates_at_once(const RunPlan& plan, int world) {
  return world == 1 && plan.gpus == 0 && std::holds_alternative<MlpSpec>(plan.spec.model) && plan.spec.clip_norm == 0 &&
         plan.spec.micro_batch == 0;
}

}  // namespace

Result<std::unique_ptr<AllReduce>> AllReduce::open(const RunPlan& plan, std::unique_ptr<Gang> gang) {
  const Deadline deadline = Deadline::after(plan.spec.deadline_seconds);
  const OptimizerKernel optimizer(plan.spec.optimizer, plan.layout);
  const int64_t leaves = leaf_count(gang->world());
  const TeamPlan team_plan{.elements = plan.layout.size(),
                           .states = optimizer.states(),
                           .arenas = most_nodes(gang->world(), leaves)};
  TRY(auto team, Team::open(*gang, team_plan, deadline));
  return std::unique_ptr<AllReduce>(new AllReduce(plan, std::move(gang), std::move(team)));
}

AllReduce::AllReduce(const RunPlan& plan, std::unique_ptr<Gang> gang, std::unique_ptr<Team> team)
    : plan_(plan),
      optimizer_(plan.spec.optimizer, plan.layout),
      gang_(std::move(gang)),
      team_(std::move(team)),
      meeting_(*team_),
      exchange_(std::make_unique<Exchange>(*team_, meeting_, overlap_of(plan.spec))),
      crew_(plan.crew > 1 ? std::make_unique<Crew>(plan.crew) : nullptr) {
  INVARIANT(crew_ == nullptr || gang_->world() == 1, "a crew is one participant's");
  if (!updates_at_once(plan, gang_->world())) return;
  std::vector<std::span<float>> states;
  for (int i = 0; i < optimizer_.states(); ++i) states.push_back(team_->state(i));
  at_once_ = std::make_unique<ImmediateUpdate>(optimizer_, team_->gradients(first()).data(), team_->params(), states);
}

ArenaSizes AllReduce::sizes() const {
  const TeamPlan& plan = team_->plan();
  const auto nodes = at_once_ ? 0 : static_cast<int64_t>(this->nodes(first()).size());
  return {plan.elements, plan.elements * nodes * plan_.threads, plan.elements * plan.states};
}

void AllReduce::begin_step(int, const Update& update, int64_t samples) {
  if (!at_once_) return;
  const auto rows = static_cast<double>(samples * plan_.rows_per_sample);
  at_once_->begin({.learning_rate = update.learning_rate, .gradient_scale = 1 / rows, .step = updates(update.step) + 1});
}

Result<Outcome> AllReduce::finish_step(int me, const Update& update, const Outcome& own) {
  std::vector<double> all(static_cast<size_t>(gang_->world()) * kNotes);
  TRY(exchange_->collect(me, update.step, deadline(), notes_of(own), all));
  const Outcome outcome = total_of(all);
  TRY(check_loss(outcome.loss, update.step));
  if (at_once_) return outcome;
  float* const gradients = team_->gradients(me).data();
  by_parts(me, [&](Range range) { exchange_->sum(me, range, gradients + range.begin); });
  TRY(const double scale, gradient_scale(me, update.step, static_cast<double>(outcome.rows)));
  const OptimizerStep step{
      .learning_rate = update.learning_rate, .gradient_scale = scale, .step = updates(update.step) + 1};
  by_parts(me, [&](Range range) {
    const auto state = [&](int index) {
      return optimizer_.states() > index ? team_->state(index).data() + range.begin : nullptr;
    };
    optimizer_.update(range, step, team_->params().data() + range.begin, gradients + range.begin, state(0), state(1));
  });
  TRY(exchange_->all_gather_params(me, update.step, deadline()));
  return outcome;
}

// part(range) of all that `me` owns, by its crew if it has one.
template <class Part>
void AllReduce::by_parts(int me, const Part& part) {
  for (const Range slice : exchange_->slices(me)) {
    Crew::share(crew_.get(), slice.size(), kBlock, kBlock,
                [&](Range range) { part(Range{slice.begin + range.begin, slice.begin + range.end}); });
  }
}

Result<double> AllReduce::gradient_scale(int me, int64_t step, double rows) {
  if (plan_.spec.clip_norm == 0) return 1 / rows;
  for (const Range slice : exchange_->slices(me)) {
    block_squares(slice, team_->gradients(me).data() + slice.begin, team_->blocks().data() + slice.begin / kBlock);
  }
  TRY(exchange_->gather_blocks(me, step, deadline()));
  const double squares = sum_of(team_->blocks());
  if (!std::isfinite(squares)) return wrong_gradient(step);
  return clipped_scale(squares, 1 / rows, plan_.spec.clip_norm);
}

Result<Outcome> AllReduce::add_up(int me, int64_t step, const Outcome& own) {
  std::vector<double> all(static_cast<size_t>(gang_->world()) * kNotes);
  TRY(meeting_.gather(me, step, deadline(), notes_of(own), all));
  return total_of(all);
}

Status AllReduce::collect(int me, int64_t step) {
  for (int i = 0; i < optimizer_.states(); ++i) {
    TRY(exchange_->gather(me, step, deadline(), team_->state(i)));
  }
  return ok();
}

Status AllReduce::distribute(int me, int64_t step, int64_t updates) {
  if (me == 0) ahead_ = updates - step;
  TRY(exchange_->scatter(me, step, deadline(), team_->params()));
  TRY(exchange_->all_gather_params(me, step, deadline()));
  for (int i = 0; i < optimizer_.states(); ++i) {
    TRY(exchange_->scatter(me, step, deadline(), team_->state(i)));
  }
  return ok();
}

// The master's counts reach everyone as sums in which the others have none.
Result<int64_t> AllReduce::agree(int me, int64_t step) {
  TRY(const Outcome agreed, add_up(me, step, me == 0 ? counts(step, ahead_) : Outcome{}));
  ahead_ = agreed.correct;
  return agreed.rows;
}

Status AllReduce::wait_for_master(int me, int64_t step) {
  return meeting_.wait_for_first(me, step, kWriteSeconds, plan_.spec.deadline_seconds);
}

}  // namespace dtrain::engine
