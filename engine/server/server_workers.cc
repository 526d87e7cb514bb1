// Who is there, and who waits for whom.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "engine/comm/place.h"
#include "engine/leaves.h"
#include "engine/server/server.h"

namespace dtrain::engine {

using server::Frame;
using server::ServerOp;
using server::WaitFor;

namespace {

// Shares of the deadline. A worker that waits hears of it before its own deadline; one that is
// silent for a third is not counted any more; one that lost its connection may come back for a
// tenth.
constexpr double kInVain = 0.9, kSilent = 1.0 / 3, kBack = 0.1;
// How often one hears that it waits for worker 0.
constexpr double kTell = 0.1;
// For who is late to take a connection: only one that is gone altogether takes it all.
constexpr double kProbe_seconds = 0.5;

// The largest power of two that fits a frame's 16 bits.
constexpr uint64_t kMostLeaves = uint64_t{1} << 15;

double seconds(server::Link::Time from, server::Link::Time to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

std::string Server::name(size_t worker) const {
  return process_name(Role::Worker, static_cast<int>(worker), config_.workers[worker]);
}

Status Server::hello(Link& link) {
  const Frame& in = link.in;
  if (in.job != job_) return server::other_job();
  if (link.data != plan_.data) {
    return Error{Code::FailedPrecondition,
                 "this worker's data are not those" + (plan_.told_by < 0 ? "" : " of " + name(static_cast<size_t>(plan_.told_by))),
                 "the same data everywhere"};
  }
  if (in.layout != plan_.layout.hash()) {
    return Error{Code::FailedPrecondition, "it has another layout of this model", "the same dtrain-engine everywhere"};
  }
  if (in.rank >= workers_.size()) return Error{Code::InvalidArgument, "an unknown worker", ""};
  const ShardState& state = shard_->state();
  const bool first = (in.flags & server::kMaster) != 0;
  if (in.attempt < state.attempt() ||
      (!first && in.generation != 0 && in.generation != state.generation())) {
    return Error{Code::Aborted, "this worker is of an earlier attempt", ""};
  }
  if (first) return hello_of_first(link);
  if (in.generation != 0 && state.filled() && !confirmed_) {
    confirmed_ = true;
    admit();
  }
  if (confirmed_ && state.filled()) {
    TRY(agree_on_threads(in));
    welcome(link);
  } else {
    wait(link, WaitFor::Start);
  }
  return ok();
}

// Worker 0 decides whether what is here is its own. Else it fills the server with what it has.
Status Server::hello_of_first(Link& link) {
  ShardState& state = shard_->state();
  const Frame& in = link.in;
  if (in.generation == 0 || in.rank != 0) return Error{Code::InvalidArgument, "no worker 0", ""};
  if (in.generation != state.generation()) {
    state.begin_filling(in.generation, in.attempt);
    for (const auto& other : links_) {
      if (other->rank >= 0) {
        other->refuse({Code::Aborted, "worker 0 has begun anew", ""});
      }
    }
    clocks_ = Clocks(static_cast<int>(workers_.size()));
    for (Worker& worker : workers_) worker.joined = false;  // each may take as long as the first time
    threads_ = 0;
  }
  TRY(agree_on_threads(in));
  confirmed_ = true;
  welcome(link);
  if (state.filled()) admit();
  return ok();
}

// In step with each other, the leaves of a batch, and whose they are, follow from the number of all threads.
Status Server::agree_on_threads(const Frame& hello) {
  const size_t workers = workers_.size();
  if (sync_ && hello.threads > kMostLeaves / workers) {
    return Error{Code::InvalidArgument,
                 fmt::format("{} has {} threads, and {} workers may have {} together", name(hello.rank), hello.threads, workers,
                             kMostLeaves),
                 "threads: 1"};
  }
  if (threads_ == 0) {
    threads_ = std::max<uint64_t>(1, hello.threads);
    if (sync_) {
      const int64_t leaves = leaf_count(static_cast<int64_t>(workers * threads_));
      step_ = std::make_unique<server::StepSum>(*shard_, static_cast<int>(leaves), static_cast<int>(workers),
                                                config_.spec.strategy.backup);
    }
  }
  if (!sync_ || hello.threads == threads_) return ok();
  return Error{Code::InvalidArgument,
               fmt::format("{} has {} threads, and others have {}: parameter servers need as many everywhere",
                           name(hello.rank), hello.threads, threads_),
               "threads: 1, or the same cpus for all workers"};
}

void Server::welcome(Link& link) {
  const auto rank = static_cast<int>(link.wait == WaitFor::Start ? link.asked.rank : link.in.rank);
  Worker& worker = workers_[static_cast<size_t>(rank)];
  if (worker.link != nullptr && worker.link != &link) {
    worker.link->rank = -1;
    worker.link->refuse({Code::Aborted, "this worker has connected again", ""});
  }
  worker = {.link = &link, .joined = true, .lost = {}};
  link.rank = rank;
  clocks_.put_back(rank);
  if (sync_) step_->forget(rank);
  const ShardState& state = shard_->state();
  link.end_wait();
  link.answer(Frame{.op = ServerOp::Welcome,
                    .flags = state.filled() ? server::kFilled : uint16_t{0},
                    .generation = state.generation(),
                    .sequence = sync_ ? step_->steps() : clocks_.clock(rank),
                    .updates = state.blocks() > 0 ? state.updates(0) : 0,
                    .begun_at = state.begun_at(),
                    .deal = deal_of(link)});
}

void Server::admit() {
  const auto now = Deadline::Clock::now();
  for (Worker& worker : workers_) worker.lost = now;  // those not here yet have their time from now
  for (const auto& link : links_) {
    if (link->wait != WaitFor::Start || link->closing) continue;
    const uint64_t generation = link->asked.generation;
    if (generation != 0 && generation != shard_->state().generation()) continue;
    if (const Status same = agree_on_threads(link->asked); !same.ok()) {
      link->refuse(same.error());
    } else {
      welcome(*link);
    }
  }
}

void Server::lost(Link& link) {
  if (link.rank < 0) return;
  Worker& worker = workers_[static_cast<size_t>(link.rank)];
  if (worker.link != &link) return;
  worker.link = nullptr;
  worker.left = link.left;
  worker.lost = Deadline::Clock::now();
  worker.missed = false;
  clocks_.take_out(link.rank);
  look_at_gate();
  look_at_end(worker.lost);
}

// It pushes no more.
void Server::forget(Link& link) {
  link.left = true;
  clocks_.take_out(link.rank);
  look_at_gate();
}

void Server::wait(Link& link, WaitFor what) {
  link.wait = what;
  link.asked = link.in;
  link.since = link.told = Deadline::Clock::now();
}

void Server::look_at_gate() {
  const StrategySpec& strategy = config_.spec.strategy;
  const auto now = Deadline::Clock::now();
  for (const auto& link : links_) {
    if (link->wait != WaitFor::Gate || is_far_ahead(*link, now)) continue;
    if (strategy.mode != ServerMode::Ssp ||
        clocks_.may_pass(link->asked.sequence, static_cast<uint64_t>(strategy.staleness))) {
      answer_data(*link, 0);
    }
  }
}

// Worker 0 waits for the others' last pushes, but for no one who is gone or silent.
void Server::look_at_end(Time now) {
  bool others = false;
  for (size_t i = 1; i < workers_.size(); ++i) others |= may_push(i, now);
  for (const auto& link : links_) {
    if (link->wait != WaitFor::End) continue;
    if (!others || seconds(link->since, now) > kWriteSeconds) answer_data(*link, 0);
  }
}

void Server::look_at_step() {
  while (true) {
    const auto summed = step_->sum();
    if (!summed.ok()) {
      for (const auto& link : links_) {
        if (link->wait == WaitFor::Step) link->refuse(summed.error());
      }
      step_->forget_all();
      return;
    }
    // Steps of which all is here already may follow when the slowest are not waited for.
    const bool applies = *summed && config_.spec.clip_norm == 0;
    if (applies) step_->apply(0);
    if (!applies) break;
  }
  const uint64_t steps = step_->steps();
  for (const auto& link : links_) {
    if (link->wait != WaitFor::Step) continue;
    if (link->asked.sequence <= steps) {
      answer_data(*link, 0);
    } else if (link->asked.sequence == steps + 1 && step_->summed()) {
      answer_squares(*link);
    }
  }
}

// Those who are waited for and have not come yet: who listens reads its data, and has its time anew.
void Server::look_for_late(Time now) {
  const auto waits = [&](WaitFor what) {
    return std::ranges::any_of(links_, [&](const auto& link) { return link->wait == what; });
  };
  const bool all = waits(WaitFor::Step), first = all || waits(WaitFor::Start);
  for (size_t i = 0; i < workers_.size() && (all || (first && i == 0)); ++i) {
    Worker& worker = workers_[i];
    // Not in every turn: to look at a host that is gone takes long, and with backup workers one may never come.
    if (worker.joined || !is_gone(i, now) || seconds(worker.looked_for, now) <= kInVain * deadline_) continue;
    worker.looked_for = now;
    const bool reads = Socket::try_connect(config_.workers[i], Deadline::after(kProbe_seconds)).ok();
    if (reads) worker.lost = now;
    if (reads && !worker.reads) {
      fmt::print("waiting for {}, which listens and reads its data still\n", name(i));
      std::fflush(stdout);
    }
    worker.reads = reads;
  }
}

bool Server::is_gone(size_t worker, Time now) const {
  const Worker& of = workers_[worker];
  const double may_take = of.joined ? kBack : kInVain;
  return of.link == nullptr && seconds(of.lost, now) > may_take * deadline_;
}

void Server::look_at_clock(Time now) {
  look_for_late(now);
  int there = 0;
  for (size_t i = 0; i < workers_.size(); ++i) {
    const auto rank = static_cast<int>(i);
    Worker& worker = workers_[i];
    const bool hangs = worker.link != nullptr && worker.link->wait == WaitFor::Nothing &&
                       seconds(worker.link->heard, now) > kSilent * deadline_;
    const bool gone_long = worker.link == nullptr && seconds(worker.lost, now) > kSilent * deadline_;
    if (hangs || gone_long) clocks_.take_out(rank);
    if (!sync_ && hangs && !worker.missed) miss(i, now);
    if (step_ != nullptr && (!is_gone(i, now) || step_->has(rank))) ++there;
  }
  look_at_gate();
  look_at_end(now);
  for (const auto& link : links_) {
    if (link->wait == WaitFor::Nothing) continue;
    const bool for_who_lives = waits_for_who_lives(*link, now) && seconds(link->since, now) < kWriteSeconds;
    if (for_who_lives || (link->wait == WaitFor::Gate && is_far_ahead(*link, now))) {
      if (seconds(link->told, now) > kTell * deadline_) {
        link->answer(Frame{.op = ServerOp::Wait});
        link->told = now;
      }
      continue;
    }
    if (seconds(link->since, now) > kInVain * deadline_ || (link->wait == WaitFor::Step && there < step_->needed())) {
      link->refuse(waited_in_vain(*link, now));
    }
  }
}

// Nobody waits for it, so nothing else would tell.
void Server::miss(size_t worker, Time now) {
  workers_[worker].missed = true;
  fmt::print("{} has said nothing for {:.0f} s: the others go on without it\n", name(worker),
             seconds(workers_[worker].link->heard, now));
  std::fflush(stdout);
}

void Server::heard(Link& link) {
  link.heard = Deadline::Clock::now();
  if (link.rank < 0) return;
  const auto worker = static_cast<size_t>(link.rank);
  if (!std::exchange(workers_[worker].missed, false)) return;
  fmt::print("{} is here again\n", name(worker));
  std::fflush(stdout);
}

bool Server::is_alive(size_t worker, Time now) const {
  const Worker& of = workers_[worker];
  return of.link != nullptr && seconds(of.link->heard, now) <= kSilent * deadline_;
}

// It has not left, is not silent, and not gone but for a moment.
bool Server::may_push(size_t worker, Time now) const {
  const Worker& of = workers_[worker];
  if (of.link == nullptr) return !of.left && seconds(of.lost, now) <= kBack * deadline_;
  return !of.link->left && (of.link->wait != WaitFor::Nothing || is_alive(worker, now));
}

// What it was dealt is for later: worker 0 tests the model, and would miss the ends of epochs.
bool Server::is_far_ahead(const Link& link, Time now) const {
  const bool deals = plan_.most_ahead > 0 && shard_->range().begin == 0;  // servers before it hold nothing
  if (!deals || link.rank == 0 || link.asked.op != ServerOp::Push || !may_push(0, now)) return false;
  ShardState& state = shard_->state();
  const uint64_t own = state.deal(link.rank), first = state.deal(0), workers = workers_.size();
  if (own >= first + static_cast<uint64_t>(plan_.most_ahead)) return true;
  const auto part = [&](uint64_t deal) {
    return static_cast<int64_t>(state.begun_at() * workers + deal * static_cast<uint64_t>(config_.spec.strategy.apply_every));
  };
  return part(first) < plan_.last_epoch.begin && part(own + workers) >= plan_.last_epoch.end;
}

// Those whom it waits for say that they live.
bool Server::waits_for_who_lives(const Link& link, Time now) const {
  switch (link.wait) {
    case WaitFor::Nothing:
      return false;
    case WaitFor::Start:  // it reads a checkpoint, or makes the first parameters, and says nothing meanwhile
      return workers_[0].link != nullptr || workers_[0].reads;
    case WaitFor::Gate:
      return slowest_are_busy(now);
    case WaitFor::Step:
      return first_is_busy(now) || step_comes(now);
    case WaitFor::End:  // which look_at_end() ends
      return true;
  }
  return false;
}

bool Server::slowest_are_busy(Time now) const {
  for (size_t i = 0; i < workers_.size(); ++i) {
    const auto rank = static_cast<int>(i);
    if (clocks_.counted(rank) && clocks_.clock(rank) == clocks_.slowest() && !is_alive(i, now)) return false;
  }
  return true;
}

// Worker 0 alone is missing, and lives: it tests the model or writes a checkpoint.
bool Server::first_is_busy(Time now) const {
  if (step_->has(0) || !is_alive(0, now)) return false;
  int others = 0;
  for (size_t i = 1; i < workers_.size(); ++i) others += step_->has(static_cast<int>(i)) ? 1 : 0;
  return others + 1 >= step_->needed();
}

// What is missing is on its way over a slow network, or was not long ago the parameters that it is computed with; or its
// worker reads its data still.
bool Server::step_comes(Time now) const {
  int there = 0, coming = 0;
  for (size_t i = 0; i < workers_.size(); ++i) {
    const Link* link = workers_[i].link;
    const bool is_there = step_->has(static_cast<int>(i));
    there += is_there ? 1 : 0;
    const bool moves = link != nullptr && seconds(link->moved, now) <= kInVain * deadline_;
    coming += !is_there && (moves || workers_[i].reads) ? 1 : 0;
  }
  return there < step_->needed() && there + coming >= step_->needed();
}

Error Server::waited_in_vain(const Link& link, Time now) const {
  const double waited = seconds(link.since, now);
  if (link.wait == WaitFor::Start) {
    return {Code::DeadlineExceeded, fmt::format("{} did not begin for {:.1f} s", name(0), waited),
            ""};
  }
  std::vector<std::string> missing;
  for (size_t i = 0; i < workers_.size(); ++i) {
    const auto rank = static_cast<int>(i);
    const bool late = link.wait == WaitFor::Gate
                          ? clocks_.counted(rank) && clocks_.clock(rank) == clocks_.slowest()
                          : !step_->has(rank);
    if (late) missing.push_back(name(i) + (workers_[i].link == nullptr ? " (gone)" : ""));
  }
  return {Code::DeadlineExceeded,
          fmt::format("{} did not push for {:.1f} s", fmt::join(missing, ", "), waited),
          "look at the log of that process"};
}

}  // namespace dtrain::engine
