#include "engine/training/progress.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace dtrain::engine {

namespace {

constexpr double kSpeakEvery_seconds = 10;

// "4s", "3m10s", "2h5m"
std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{}s", whole / 60, whole % 60);
  return fmt::format("{}h{}m", whole / 3600, whole % 3600 / 60);
}

// "3", "0.42"
std::string epochs_text(int64_t step, int64_t steps_per_epoch) {
  if (step % steps_per_epoch == 0) return fmt::format("{}", step / steps_per_epoch);
  return fmt::format("{:.2f}", static_cast<double>(step) / static_cast<double>(steps_per_epoch));
}

double share(int64_t part, int64_t of) {
  return of == 0 ? 0 : static_cast<double>(part) / static_cast<double>(of);
}

}  // namespace

Progress::Progress(const RunPlan& plan, int64_t step, Scalar scalar, std::function<Clock::time_point()> now)
    : plan_(plan),
      stops_(!plan.deals_parts() || plan.place.workers.size() < 2),
      scalar_(std::move(scalar)),
      now_(std::move(now)),
      interval_began_(now_()),
      last_step_(interval_began_),
      step_(step) {}

void Progress::on_step(int64_t step, const Outcome& outcome, bool ends_epoch) {
  interval_.outcome += outcome;
  interval_.steps += step - step_;
  step_ = step;
  samples_ += outcome.rows / plan_.rows_per_sample;
  last_step_ = now_();
  interval_.rate.count(last_step_, static_cast<double>(samples_));
  const double silent = std::chrono::duration<double>(last_step_ - interval_began_).count();
  if (!ends_epoch && interval_.steps > 0 && silent >= kSpeakEvery_seconds) {
    say(step, std::nullopt);
  }
}

void Progress::on_epoch(int64_t step, const std::optional<Outcome>& test) { say(step, test); }

void Progress::on_saved() {
  if (!stops_) return;
  const auto took = now_() - std::max(last_step_, interval_began_);
  interval_.rate.leave_out(took);
  interval_.saving_seconds += std::chrono::duration<double>(took).count();
}

double Progress::seconds_left(int64_t step) const {
  return training_seconds_ / static_cast<double>(trained_steps_) * static_cast<double>(plan_.steps - step);
}

void Progress::say(int64_t step, const std::optional<Outcome>& test) {
  // Without the evaluation that came after the last step, if nobody learned meanwhile.
  const double seconds = std::chrono::duration<double>(last_step_ - interval_began_).count();
  interval_began_ = stops_ ? now_() : last_step_;
  training_seconds_ += seconds;
  trained_steps_ += interval_.steps;
  // Of a single step it is known how long this process took, and what for.
  const double rate = interval_.rate.per_second().value_or(
      static_cast<double>(interval_.outcome.rows / plan_.rows_per_sample) / (seconds - interval_.saving_seconds));
  std::string line = fmt::format("epoch={} step={}", epochs_text(step, plan_.steps_per_epoch), step);
  // Of batches smaller than the number of workers there are parts that teach nothing.
  if (interval_.outcome.rows > 0) {
    const double loss = interval_.outcome.loss / static_cast<double>(interval_.outcome.rows);
    line += fmt::format(" loss={:.4f}", loss);
    scalar_("loss", step, loss);
  }
  if (test) {
    const double accuracy = share(test->correct, test->rows);
    const double test_loss = test->loss / static_cast<double>(test->rows);
    line += fmt::format(" test_loss={:.4f} accuracy={:.4f}", test_loss, accuracy);
    scalar_("test_loss", step, test_loss);
    scalar_("accuracy", step, accuracy);
  }
  line += fmt::format(" samples_per_second={:.0f}", rate);
  scalar_("samples_per_second", step, rate);
  if (step < plan_.steps && trained_steps_ > 0) line += fmt::format(" left={}", duration_text(seconds_left(step)));
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
  interval_ = {};
  if (!stops_) interval_.rate.count(last_step_, static_cast<double>(samples_));
}

}  // namespace dtrain::engine
