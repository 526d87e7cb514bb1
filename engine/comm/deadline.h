// A point in steady time until which a wait may last. Who waits for another process to do what it must has one, and where
// data moves meanwhile another one after it: it is silence that ends a wait. Who waits to be asked has none.
#pragma once

#include <algorithm>
#include <chrono>
#include <climits>

namespace dtrain::engine {

// While the master writes a checkpoint.
inline constexpr double kWriteSeconds = 900;
// While others read their data before all meet.
inline constexpr double kReadSeconds = 900;
// For another thread of this process, whose own waits have deadlines: its error ends this one.
inline constexpr double kEverSeconds = 1e8;

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline after(double seconds) {
    const auto wait = std::chrono::duration<double>(std::clamp(seconds, 0.0, kEverSeconds));
    return Deadline(Clock::now() + std::chrono::duration_cast<Clock::duration>(wait), seconds);
  }

  // As long again, from then on.
  Deadline from(Clock::time_point start) const { return after(seconds_).moved_by(start - Clock::now()); }

  bool expired() const { return Clock::now() >= at_; }
  // Rounded up, so that a poll of so long does not wake before the deadline; 0 once expired.
  int remaining_ms() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now()).count();
    return static_cast<int>(std::clamp<long>(left, 0, INT_MAX));
  }
  // How long, once it is over, others may take to say whom they miss themselves.
  double answer_seconds() const { return std::clamp(seconds_ / 10, 0.5, 1.0); }
  // When to ask others since when nothing has moved there: first, in a wait that is only made (no look at the clock, of
  // which small messages would need many), and again, from now.
  Deadline first_question() const {
    const std::chrono::duration<double> rest(std::min(seconds_, kEverSeconds) * 0.9);
    return moved_by(-std::chrono::duration_cast<Clock::duration>(rest));
  }
  Deadline next_question() const { return after(seconds_ / 10); }
  bool operator<(const Deadline& other) const { return at_ < other.at_; }
  Clock::time_point at() const { return at_; }
  // What it was given: "did not answer for 30 s".
  double seconds() const { return seconds_; }

 private:
  Deadline(Clock::time_point at, double seconds) : at_(at), seconds_(seconds) {}
  Deadline moved_by(Clock::duration by) const { return Deadline(at_ + by, seconds_); }

  Clock::time_point at_;
  double seconds_;
};

}  // namespace dtrain::engine
