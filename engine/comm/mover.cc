#include "engine/comm/mover.h"

namespace dtrain::engine {

namespace {

constexpr double kEver_seconds = 1e8;
constexpr const char* kDoing = "all-reduce";

}  // namespace

Mover::Mover(Team& team, Wire& wire, const std::vector<BucketTransfers>& buckets, double deadline_seconds)
    : team_(team),
      wire_(wire),
      buckets_(buckets),
      deadline_seconds_(deadline_seconds),
      thread_([this] { run(); }) {}

Mover::~Mover() {
  ends_ = true;
  team_.summed(team_.gang().first()).add(0);  // wakes it
  thread_.join();
}

Status Mover::finish(Deadline deadline, const Moment& moment) {
  steps_ += 1;
  {
    const std::lock_guard lock(mutex_);
    asked_ = deadline;
  }
  const auto all = static_cast<uint32_t>(steps_ * buckets_.size());
  const std::function<Status()> watch = [&] { return team_.look(moment); };
  bool done = false;
  while (!done) {
    // The mover waits a little longer than the deadline, and knows whom it misses.
    TRY(done, wait_for(moved_, team_.patience(deadline.later().later(), watch),
                       [all](uint32_t moved) { return has_come_to(moved, all); }));
    if (done) break;
    deadline = deadline.from(team_.gang().asking().moved());
    if (deadline.expired()) break;
  }
  const std::lock_guard lock(mutex_);
  asked_.reset();
  if (done) return ok();
  return team_.fail(moment.during({Code::DeadlineExceeded,
                                   fmt::format("gradients were not exchanged within {:g} s", deadline.seconds()),
                                   "a longer deadline, or a faster network"}));
}

void Mover::run() {
  for (uint64_t moved = 0;; ++moved) {
    const auto status = move(moved);
    if (ends_) return;
    if (!status.ok()) {
      team_.fail(status.error());  // which finish() finds
      return;
    }
    moved_.set(static_cast<uint32_t>(moved + 1));
  }
}

Status Mover::move(uint64_t moved) {
  TRY(wait_for_sums(static_cast<uint32_t>(moved + 1)));
  const BucketTransfers& bucket = buckets_[moved % buckets_.size()];
  return wire_.run(Op::Gradients, bucket.out, bucket.in, due(), {step_.load(std::memory_order_relaxed), kDoing});
}

// Who computes may take any time. That the others of the host are far behind is noticed by those who wait for them.
Status Mover::wait_for_sums(uint32_t summed) {
  const auto wait_for_one = [&](int participant, const std::function<Status()>& watch) -> Status {
    TRY(const bool came, wait_for(team_.summed(participant), {Deadline::after(kEver_seconds), 0, &watch},
                                  [summed](uint32_t value) { return has_come_to(value, summed); }));
    if (!came) return Error{Code::DeadlineExceeded, "gradients were never summed", ""};
    return ok();
  };
  // Between steps nobody is missed: others may have left because training is over.
  const std::function<Status()> whether_to_go_on = [&]() -> Status {
    if (ends_) return Error{Code::Cancelled, "training ends", ""};
    return ok();
  };
  TRY(wait_for_one(team_.gang().first(), whether_to_go_on));
  for (int p = team_.first(); p < team_.first() + team_.size(); ++p) {
    const std::function<Status()> watch = [&]() -> Status {
      TRY(whether_to_go_on());
      return team_.look({step_.load(std::memory_order_relaxed), kDoing}, [&] { return team_.gang().participant(p).process; });
    };
    TRY(wait_for_one(p, watch));
  }
  return ok();
}

Deadline Mover::due() {
  const std::lock_guard lock(mutex_);
  return asked_.value_or(Deadline::after(deadline_seconds_));
}

}  // namespace dtrain::engine
