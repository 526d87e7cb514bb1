#include "engine/comm/mover.h"

namespace dtrain::engine {

namespace {

constexpr const char* kDoing = "all-reduce";

Status come_to(Signal& signal, uint32_t target, const Patience& patience) {
  TRY(const bool came,
      wait_for(signal, patience, [target](uint32_t value) { return has_come_to(value, target); }));
  if (!came) return Error{Code::DeadlineExceeded, "gradients were never exchanged", ""};
  return ok();
}

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

Status Mover::finish(const Moment& moment) {
  steps_ += 1;
  const std::function<Status()> watch = [&] { return team_.look(moment); };
  return come_to(moved_, static_cast<uint32_t>(steps_ * buckets_.size()),
                 team_.patience(Deadline::after(kEverSeconds), watch));
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
  return wire_.run(Op::Gradients, bucket.out, bucket.in, Deadline::after(deadline_seconds_),
                   {step_.load(std::memory_order_relaxed), kDoing});
}

// Who computes may take any time. That the others of the host are far behind is noticed by those who wait for them.
Status Mover::wait_for_sums(uint32_t summed) {
  const auto wait_for_one = [&](int participant, const std::function<Status()>& watch) {
    return come_to(team_.summed(participant), summed, {Deadline::after(kEverSeconds), 0, &watch});
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

}  // namespace dtrain::engine
