#include "engine/comm/team.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "engine/comm/pass_fd.h"
#include "engine/comm/team_memory.h"

namespace dtrain::engine {
namespace {

// 50 us and more: longer than participants of one step differ, but for a tick; shorter than a sleep costs.
constexpr int kSpins = 5000;
constexpr double kAsk_seconds = 0.02;

}  // namespace

template <class T>
T* Team::at(size_t offset) const {
  // Zeroed memory is the start of all that lies there.
  return reinterpret_cast<T*>(memory_.data() + offset);
}

Team::Seat& Team::seat(int participant) const {
  return at<Seat>(areas_->seats)[local(participant)];
}

Team::Team(Gang& gang, const TeamPlan& plan) : gang_(gang), plan_(plan) {
  for (int p = 0; p < gang.world(); ++p) {
    if (gang.participant(p).host == gang.host()) everyone_.push_back(p);
  }
  first_ = everyone_.front();
  size_ = static_cast<int>(everyone_.size());
  areas_ = std::make_unique<Areas>(plan, everyone_.size(), static_cast<size_t>(gang.world()));
}

Team::~Team() = default;

Result<std::unique_ptr<Team>> Team::open(Gang& gang, const TeamPlan& plan, Deadline deadline) {
  std::unique_ptr<Team> team(new Team(gang, plan));
  TRY(team->map(deadline));
  team->memory_.prefer_huge(team->areas_->arenas, team->areas_->end - team->areas_->arenas);
  for (int thread = 0; thread < gang.threads(); ++thread) {
    Seat& own = team->seat(gang.first() + thread);
    if (::sched_getaffinity(0, sizeof(own.cpus), &own.cpus) != 0) CPU_ZERO(&own.cpus);
    own.opened.store(1, std::memory_order_relaxed);
  }
  TRY(team->meet(deadline));
  team->decide_spinning();
  return team;
}

Status Team::map(Deadline deadline) {
  const std::vector<int>& processes = gang_.hosts()[static_cast<size_t>(gang_.host())];
  if (processes.size() == 1) {
    TRY(memory_, SharedMemory::alone(areas_->end));
    return ok();
  }
  if (gang_.self() == processes.front()) {
    TRY(memory_, SharedMemory::create(areas_->end));
    for (const int process : processes) {
      if (process != gang_.self()) {
        TRY(send_fd(gang_.peer(process).local, memory_.fd(), deadline));
      }
    }
    return ok();
  }
  TRY(Fd fd, receive_fd(gang_.peer(processes.front()).local, deadline));
  TRY(memory_, SharedMemory::open(std::move(fd), areas_->end));
  return ok();
}

Status Team::meet(Deadline deadline) {
  const auto processes = gang_.hosts()[static_cast<size_t>(gang_.host())].size();
  const Moment moment{0, "start"};
  const std::function<Status()> watch = [&] { return look(moment); };
  TRY(const bool met,
      at<Control>(areas_->control)
          ->opening.pass(static_cast<uint32_t>(processes), 1, patience(deadline, watch)));
  if (met) return ok();
  std::string names;
  for (const int process : gang_.hosts()[static_cast<size_t>(gang_.host())]) {
    if (seat(gang_.peer(process).first).opened.load(std::memory_order_relaxed) != 0) continue;
    names += (names.empty() ? "" : ", ") + gang_.peer(process).name;
  }
  return fail({Code::DeadlineExceeded,
               fmt::format("{} did not map the shared memory of its host for {:g} s", names, deadline.seconds()),
               "look at the log of that process"});
}

// Spinning pays only where nobody spins away the time of one who works.
void Team::decide_spinning() {
  cpu_set_t all;
  CPU_ZERO(&all);
  bool room = true;
  for (const int p : everyone_) {
    CPU_OR(&all, &all, &seat(p).cpus);
    const int threads = gang_.peer(gang_.participant(p).process).threads;
    room = room && CPU_COUNT(&seat(p).cpus) >= threads;
  }
  spins_ = room && CPU_COUNT(&all) >= size_ ? kSpins : 0;
}

std::span<float> Team::params() const {
  return {at<float>(areas_->arenas), static_cast<size_t>(plan_.elements)};
}

std::span<float> Team::state(int index) const {
  const size_t arena = 1 + static_cast<size_t>(index);
  return {at<float>(areas_->arenas + arena * areas_->arena_bytes),
          static_cast<size_t>(plan_.elements)};
}

std::span<float> Team::gradients(int participant, int arena) const {
  const size_t index = 1 + static_cast<size_t>(plan_.states) +
                       local(participant) * static_cast<size_t>(plan_.arenas) +
                       static_cast<size_t>(arena);
  return {at<float>(areas_->arenas + index * areas_->arena_bytes),
          static_cast<size_t>(plan_.elements)};
}

std::span<double> Team::blocks() const {
  return {at<double>(areas_->blocks),
          static_cast<size_t>(blocks_of(plan_.elements))};
}

std::span<double> Team::notes(int set, int participant) const {
  const int index = set * gang_.world() + participant;
  return {at<double>(areas_->notes) + index * kMostNotes, kMostNotes};
}

std::span<float> Team::stage(int slot, int set, int participant) const {
  const size_t index = static_cast<size_t>((2 * slot + set) * size_) + local(participant);
  return {at<float>(areas_->stages) + index * kStageElements, kStageElements};
}

Ring& Team::ring(int from, int to) const {
  return at<Ring>(areas_->rings)[local(from) * static_cast<size_t>(size_) + local(to)];
}

Word& Team::written(int participant) const { return seat(participant).written; }

Signal& Team::summed(int participant) const { return seat(participant).summed; }

void Team::set_moving(int participant, bool moves) {
  seat(participant).moves.store(moves ? 1 : 0, std::memory_order_relaxed);
}

Status Team::barrier(int me, Deadline deadline, const Moment& moment) {
  seat(me).at.store(0, std::memory_order_relaxed);
  return pass(at<Control>(areas_->control)->everyone, everyone_, 0, me, deadline, moment);
}

Status Team::barrier(int me, std::span<const int> group, int slot, Deadline deadline,
                     const Moment& moment) {
  // The groups of a slot have no member in common: the first member names one.
  const size_t index = static_cast<size_t>(slot * size_) + local(group.front());
  seat(me).at.store(1 + static_cast<uint32_t>(index), std::memory_order_relaxed);
  return pass(at<Barrier>(areas_->groups)[index], group, 1 + static_cast<size_t>(slot), me,
              deadline, moment);
}

Status Team::pass(Barrier& barrier, std::span<const int> group, size_t slot, int me,
                  Deadline deadline, const Moment& moment) {
  Word& own = seat(me).epochs[slot];
  const uint32_t epoch = own.load(std::memory_order_relaxed) + 1;
  // Only for the names of the missing; the barrier itself orders memory.
  own.store(epoch, std::memory_order_relaxed);
  const std::function<int()> waited_for = [&] {
    const std::map<int, std::string> processes = missing(group, slot, epoch).first();
    return processes.empty() || processes.contains(gang_.self()) ? gang_.self() : processes.begin()->first;
  };
  const std::function<Status()> watch = [&] { return look(moment, waited_for); };
  Wait wait(deadline);
  TRY(bool passed,
      barrier.pass(static_cast<uint32_t>(group.size()), epoch, patience(wait.until, watch)));
  while (!passed) {
    const Missing others = missing(group, slot, epoch);
    TRY(overdue(wait, others.first(), moment, others.idle.empty()));
    TRY(passed, wait_for(barrier.passed, patience(wait.until, watch),
                         [epoch](uint32_t value) { return has_come_to(value, epoch); }));
  }
  return ok();
}

// Whether it waits for somebody else: for another host, or at a barrier.
bool Team::waits(int participant) const {
  const Seat& its = seat(participant);
  if (its.moves.load(std::memory_order_relaxed) != 0) return true;
  const uint32_t where = its.at.load(std::memory_order_relaxed);
  const Barrier& barrier = where == 0 ? at<Control>(areas_->control)->everyone : at<Barrier>(areas_->groups)[where - 1];
  const size_t slot = where == 0 ? 0 : 1 + (where - 1) / static_cast<size_t>(size_);
  return !has_come_to(barrier.passed.value.load(std::memory_order_relaxed), its.epochs[slot].load(std::memory_order_relaxed));
}

Team::Missing Team::missing(std::span<const int> group, size_t slot, uint32_t epoch) const {
  Missing all;
  for (const int p : group) {
    if (has_come_to(seat(p).epochs[slot].load(std::memory_order_relaxed), epoch)) continue;
    std::string& names = (waits(p) ? all.waiting : all.idle)[gang_.participant(p).process];
    names += (names.empty() ? "" : ", ") + gang_.participant_name(p);
  }
  return all;
}

Status Team::overdue(Wait& wait, const std::map<int, std::string>& processes, const Moment& moment, bool they_wait) {
  Asking& asking = gang_.asking();
  const auto now = Deadline::Clock::now();
  if (!wait.asks_since) wait.asks_since = now;
  auto moved = asking.moved();
  std::map<int, std::string> silent;
  const auto look_behind = [&](int process) {
    const Asking::Behind behind = asking.behind(process, *wait.asks_since);
    moved = std::max(moved, behind.moved);
    for (const int each : behind.silent) {
      const auto said = processes.find(each);
      silent.emplace(each, said == processes.end() ? gang_.peer(each).name : said->second);
    }
  };
  for (const auto& [process, name] : processes) look_behind(process);
  if (processes.empty()) look_behind(asking.anyone());
  if (const Deadline last = std::max(wait.deadline, wait.deadline.from(moved)); !last.expired()) {
    // Who computes then can't say when data moved last.
    asking.ask(now);
    wait.until = std::min(last, wait.deadline.next_question());
    wait.asks_since.reset();
    return ok();
  }
  const double may_take = wait.deadline.answer_seconds() * (they_wait ? 3 : 1);
  if (now - *wait.asks_since < std::chrono::duration<double>(may_take)) {
    asking.ask(*wait.asks_since);
    wait.until = Deadline::after(kAsk_seconds);
    return ok();
  }
  std::string names;
  for (const auto& [process, name] : silent.empty() ? processes : silent) names += (names.empty() ? "" : ", ") + name;
  if (names.empty()) names = "others";
  return fail(moment.during({Code::DeadlineExceeded,
                             fmt::format("{} did not answer for {:g} s", names, wait.deadline.seconds()),
                             "look at the log of that process"}));
}

std::optional<Error> Team::failed() const {
  const Failure& failure = at<Control>(areas_->control)->failure;
  // Acquire: the text was written before.
  if (failure.state.load(std::memory_order_acquire) != 2) return std::nullopt;
  return Error{static_cast<Code>(failure.code.load(std::memory_order_relaxed)), failure.text, ""};
}

Status Team::look(const Moment& moment, const std::function<int()>& waited_for) {
  if (auto error = failed()) return std::move(*error);
  if (auto news = gang_.look(moment); !news.ok()) return fail(std::move(news).error());
  if (waited_for && gang_.asking().is_asked()) gang_.asking().answer(waited_for());
  return ok();
}

Error Team::fail(Error error) {
  Failure& failure = at<Control>(areas_->control)->failure;
  uint32_t none = 0;
  if (failure.state.compare_exchange_strong(none, 1, std::memory_order_acq_rel)) {
    error.message.resize(std::min(error.message.size(), sizeof(failure.text) - 1));
    std::memcpy(failure.text, error.message.data(), error.message.size());
    failure.code.store(static_cast<uint32_t>(error.code), std::memory_order_relaxed);
    failure.state.store(2, std::memory_order_release);
  }
  // Another participant may be writing one just now: then there are two, of the same moment.
  Error first = failed().value_or(error);
  first.hint = error.hint;
  gang_.fail(first);
  return first;
}

}  // namespace dtrain::engine
