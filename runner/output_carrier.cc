#include "runner/output_carrier.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "runner/first_of.h"

namespace dtrain::runner {
namespace {

constexpr std::chrono::seconds kCarryEvery{10};
constexpr int kRoundsOfGrowing = 6;   // files that never rest are carried each minute

}  // namespace

OutputCarrier::OutputCarrier(boost::asio::io_context& loop, OutputStore& store, CarriedPlace place, pb::OutputsRequest of,
                             bool brings)
    : work_(std::make_shared<Work>(Work{store, std::move(place), std::move(of), brings})), timer_(loop), worker_(loop) {}

void OutputCarrier::begin() { later(kCarryEvery); }

void OutputCarrier::end() {
  ended_ = true;
  timer_.cancel();
}

void OutputCarrier::later(std::chrono::seconds after) {
  if (ended_) return;
  timer_.expires_after(after);
  timer_.async_wait([this, alive = std::weak_ptr(alive_)](boost::system::error_code error) {
    if (error || alive.expired()) return;
    carry(++rounds_ % kRoundsOfGrowing == 0 ? Which::Growing : Which::Quiet);
  });
}

void OutputCarrier::carry(Which which) {
  auto more = std::make_shared<bool>(false);
  worker_.run([work = work_, which, more] { carry_some(*work, which, *more); },
              [this, which, more, alive = std::weak_ptr(alive_)] {
                if (alive.expired()) return;
                if (*more && !ended_) return carry(which);
                later(kCarryEvery);
              });
}

void OutputCarrier::carry_some(Work& work, Which which, bool& more) {
  const auto carry = [&]() -> Status {
    TRY(const Carried carried, carry_outputs(work.place, work.store, work.of, which, work.memory));
    more = carried.more;
    if (!more && work.brings) TRY(bring_outputs(work.place, work.store, work.of, [] { return true; }));
    return ok();
  };
  const Status done = carry();
  const std::string why = done.ok() ? "" : done.error().message;
  if (why != work.said && !why.empty()) fmt::print(stderr, "{}: outputs are not carried: {}; trying again\n", work.of.experiment(), why);
  work.said = why;
}

void OutputCarrier::finish(const std::string& who, std::function<void(std::string)> then) {
  auto remarks = std::make_shared<std::string>();
  worker_.run_until_done([work = work_, who, remarks] { return carry_all(*work, who, *remarks); },
                         [alive = std::weak_ptr(alive_), then = std::move(then), remarks] {
                           if (!alive.expired()) then(std::move(*remarks));
                         });
}

bool OutputCarrier::carry_all(Work& work, const std::string& who, std::string& remarks) {
  work.memory.refused.clear();   // once more
  for (;;) {
    const auto carried = carry_outputs(work.place, work.store, work.of, Which::Growing, work.memory);
    if (carried.ok() && carried->more) continue;
    if (carried.ok()) {
      if (!carried->troubles.empty()) remarks = "not carried: " + first_of(carried->troubles);
      return true;
    }
    const Error& error = carried.error();
    if (error.code == Code::FailedPrecondition || error.code == Code::NotFound) {
      fmt::print(stderr, "{}: {}; its outputs stay in {} for a week\n", who, error.message, work.place.files().string());
      return true;
    }
    if (error.message != work.said) fmt::print(stderr, "{}: outputs are not carried: {}; trying again\n", who, error.message);
    work.said = error.message;
    return false;
  }
}

}  // namespace dtrain::runner
