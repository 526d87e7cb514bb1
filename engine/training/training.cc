#include "engine/training/training.h"

#include <cstdio>
#include <ctime>
#include <thread>
#include <vector>

#include "engine/buffer.h"
#include "engine/enough_memory.h"
#include "engine/optimizer.h"
#include "engine/strategies/not_finite.h"
#include "engine/training/batches.h"

namespace dtrain::engine {

namespace {

// Bytes of this process. Each of its threads has gradients of its own, and activations: of as many samples
// as it takes at once, with their gradients.
void say_memory(const ArenaSizes& sizes, int64_t activations) {
  constexpr int64_t kBytes = sizeof(float);
  fmt::print("memory parameters={} gradients={} state={} activations={}\n", sizes.parameters * kBytes,
             sizes.gradients * kBytes, sizes.state * kBytes, activations);
  std::fflush(stdout);
}

// What training and test data were taken for.
void say_data(const RunPlan& plan) {
  std::string line = fmt::format("data samples={}", plan.train.size());
  if (plan.test) line += fmt::format(" test_samples={}", plan.test->size());
  if (plan.train.kind() == Dataset::Kind::Images) {
    line += fmt::format(" shape={} classes={}", fmt::join(plan.train.shape(), "x"), plan.train.classes());
    if (const std::string empty = plan.train.empty_classes(); !empty.empty()) line += '\n' + empty;
  } else {
    line += fmt::format(" tokens={} vocabulary={}", plan.train.token_count(), plan.train.vocabulary());
  }
  fmt::print("{}\n", line);
}

void say_schedule(const RunPlan& plan) {
  const LearningRate rate = plan.learning_rate();
  if (rate.warm_up() <= plan.steps) return;
  fmt::print("warm-up takes {} steps, and there are {}: the learning rate ends at {:.3g}\n", rate.warm_up(), plan.steps,
             rate.at(plan.steps - 1));
}

}  // namespace

Status Training::run() {
  std::vector<std::optional<Error>> errors(static_cast<size_t>(plan_.threads));
  const auto participate = [&](int thread) {
    const Status status = with_enough_memory([&] { return run_participant(updater_.first() + thread); });
    // The others hear of it at their next wait; and the first error is everyone's.
    if (!status.ok()) errors[static_cast<size_t>(thread)] = updater_.fail(status.error());
  };
  std::vector<std::thread> threads;
  for (int thread = 1; thread < plan_.threads; ++thread) threads.emplace_back(participate, thread);
  participate(0);
  for (std::thread& thread : threads) thread.join();
  for (std::optional<Error>& error : errors) {
    if (error) return std::move(*error);
  }
  if (ended_early_at_ < 0) return ok();
  return Error{Code::Cancelled, fmt::format("asked to end by TERM, after step {}", ended_early_at_.load()), ""};
}

Status Training::run_participant(int me) {
  TRY(int64_t step, begin(me));
  const LearningRate learning_rate = plan_.learning_rate();
  const int64_t bytes_before = buffer_bytes_made();
  TRY(const std::unique_ptr<Share> share, make_share_(plan_, updater_, me));
  if (is_master(me)) say_memory(updater_.sizes(), (buffer_bytes_made() - bytes_before) * plan_.threads);

  // One of its threads hears of it for all.
  std::optional<EndRequest> request;
  if (me == updater_.first() && updater_.tells_all()) request.emplace();
  Batches batches(plan_, *share, [&](int64_t batch) { return updater_.dealt(me, batch); });
  int64_t left_out = 0;  // with backup: the steps that the others did without this worker
  while (step < plan_.steps) {
    const Batch batch = batches.of(step);
    const Update update{.step = step, .learning_rate = learning_rate.at(step)};
    updater_.begin_step(me, update, batch.size());
    TRY(Outcome own, share->train(batch, step));
    own.asked_to_end = request && request->is_made() ? 1 : 0;
    TRY(Outcome outcome, updater_.finish_step(me, update, own));
    const int64_t before = step;
    step = updater_.steps_seen(me, before + 1);
    left_out += step - before - 1;

    const bool last = step == plan_.steps;
    const auto passed = [&](int64_t every) { return step / every > before / every; };
    const bool ends_epoch = last || passed(plan_.steps_per_epoch);
    const bool ends_early = outcome.asked_to_end > 0 && !last;
    const bool saves = last || ends_early || passed(plan_.checkpoint_every);
    // Where steps overlap, what has ended is told of and saved as of its own end, some parts of the next or none.
    const auto end = [&](int64_t every) { return plan_.deals_parts() && !last ? step / every * every : step; };
    int64_t known = step - updater_.steps_behind();
    if (ends_epoch || saves) {
      TRY(const Outcome rest, updater_.settle(me, before));
      outcome += rest;
      known = ends_epoch ? end(plan_.steps_per_epoch) : step;
    }
    if (is_master(me)) progress_->on_step(known, outcome, ends_epoch);
    // It may be ended for good while it tests.
    if (ends_early) TRY(save(me, step, true));
    if (ends_epoch) {
      std::optional<Outcome> test;
      if (plan_.test) {
        TRY(test, evaluate(me, known, *share));
      }
      if (is_master(me)) progress_->on_epoch(known, test);
    }
    if (ends_early) {
      ended_early_at_ = step;
      return updater_.finish(me);
    }
    if (saves) {
      TRY(save(me, end(plan_.checkpoint_every), last));
      if (is_master(me)) progress_->on_saved();
    }
  }
  if (me == updater_.first() && plan_.spec.strategy.backup > 0) {
    fmt::print("left_out_of_steps={}\n", left_out);
    std::fflush(stdout);
  }
  TRY(updater_.finish(me));
  if (!is_master(me)) return ok();
  TRY(const std::string path, saver_->finish(updater_));
  fmt::print("model={}\n", path);
  return ok();
}

// Where it goes on: parameters and state are the same for everyone afterwards.
Result<int64_t> Training::begin(int me) {
  int64_t step = 0, updates = 0;
  if (is_master(me)) {
    say_data(plan_);
    say_schedule(plan_);
    TRY(Saver saver, Saver::open(plan_));
    saver_.emplace(std::move(saver));
    TRY(start_.read(plan_, updater_));
    step = start_.step();
    updates = start_.updates();
    if (const std::string line = start_.line(); !line.empty()) fmt::print("{}\n", line);
    TRY(events_, EventFile::create(plan_.output_dir, step + 1));
    if (step >= plan_.steps) fmt::print("all {} steps are done: nothing is left to train\n", plan_.steps);
    std::fflush(stdout);
  }
  TRY(updater_.wait_for_master(me, step));
  TRY(updater_.distribute(me, step, updates));
  TRY(const int64_t agreed, updater_.agree(me, step));
  if (is_master(me)) {
    progress_.emplace(plan_, agreed, [this](std::string_view tag, int64_t at, double value) {
      events_->scalar(tag, at, value);
    });
  }
  if (!plan_.place.is_master() && me == updater_.first()) {
    fmt::print("joined_at_step={}\n", agreed);
    std::fflush(stdout);
  }
  return agreed;
}

Result<Outcome> Training::evaluate(int me, int64_t step, Share& share) {
  TRY(const Outcome own, share.evaluate(updater_.evaluated(me, plan_.test->size()), step));
  TRY(const Outcome all, updater_.add_up(me, step, own));
  TRY(check_test_loss(all.loss, step));
  return all;
}

Status Training::save(int me, int64_t step, bool is_last) {
  if (updater_.keeps_collected()) {
    if (is_master(me)) saver_->settle();
    TRY(updater_.wait_for_master(me, step));
  }
  TRY(updater_.collect(me, step));
  if (is_master(me)) TRY(saver_->save(updater_, step, is_last));
  return updater_.wait_for_master(me, step);
}

}  // namespace dtrain::engine
