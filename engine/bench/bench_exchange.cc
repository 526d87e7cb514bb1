#include "engine/bench/bench_exchange.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "engine/bench/ceilings.h"
#include "engine/comm/exchange.h"
#include "engine/comm/rendezvous.h"

namespace dtrain::engine {
namespace {

// What each process does for one size; the rate is process 0's.
Result<ExchangeRate> measure(Gang& gang, int64_t bytes) {
  const auto deadline = [] { return Deadline::after(kBenchPatience_seconds); };
  const int world = gang.world(), me = gang.first();
  TeamPlan plan{.elements = std::max<int64_t>(1, bytes / static_cast<int64_t>(sizeof(float)))};
  plan.arenas = most_nodes(world, leaf_count(world));
  TRY(const auto team, Team::open(gang, plan, deadline()));
  Meeting meeting(*team);
  Exchange exchange(*team, meeting);
  std::vector<float> from(me == 0 ? static_cast<size_t>(plan.elements) : 0, 1.0f), to(from);
  std::vector<double> exchanges, copies;
  constexpr double kBytesPerSize = 2e9;  // that are moved, about
  constexpr int64_t kFewestRounds = 9, kMostRounds = 4001;
  const int64_t rounds = std::clamp(static_cast<int64_t>(kBytesPerSize / double(bytes)) | 1,
                                    kFewestRounds, kMostRounds);
  for (int64_t round = -2; round < rounds; ++round) {
    auto start = Deadline::Clock::now();
    if (me == 0) {
      std::memcpy(to.data(), from.data(), to.size() * sizeof(float));
      asm volatile("" : : "r"(to.data()) : "memory");  // or it need not happen
      if (round >= 0) copies.push_back(seconds_since(start));
    }
    // As backward leaves them: each has its own in its cache, and no longer what it read of the others'.
    for (int arena = 0; arena < plan.arenas; ++arena) std::ranges::fill(team->gradients(me, arena), 1e-20f);
    TRY(team->barrier(me, deadline(), {round, "bench"}));
    if (gang.hosts().size() > 1) TRY(meeting.gather(me, round, deadline(), {}, {}));
    start = Deadline::Clock::now();
    // Each sums its slice in place, where all of the host can read it; between hosts as many parameters go round.
    TRY(exchange.collect(me, round, deadline()));
    for (const Range slice : exchange.slices(me)) {
      exchange.sum(me, slice, team->gradients(me).data() + slice.begin);
    }
    TRY(exchange.all_gather_params(me, round, deadline()));
    if (round >= 0) exchanges.push_back(seconds_since(start));
  }
  ExchangeRate rate{.bytes = plan.elements * static_cast<int64_t>(sizeof(float))};
  rate.exchange_seconds = median(exchanges);
  if (me == 0) rate.memcpy_seconds = median(copies);
  return rate;
}

Result<std::vector<ExchangeRate>> run(const Attendance& attendance, Listener listener,
                                      std::span<const int64_t> sizes_bytes) {
  TRY(const auto gang, meet(attendance, Deadline::after(kBenchPatience_seconds), std::move(listener)));
  std::vector<ExchangeRate> rates;
  for (const int64_t bytes : sizes_bytes) {
    TRY(rates.emplace_back(), measure(*gang, bytes));
  }
  return rates;
}

}  // namespace

Result<std::vector<ExchangeRate>> bench_exchange(int processes, bool tcp,
                                                 std::span<const int64_t> sizes_bytes) {
  std::vector<Listener> listeners;
  Attendance attendance;
  for (int i = 0; i < processes; ++i) {
    TRY(listeners.emplace_back(), Listener::open("127.0.0.1", 0));
    attendance.place.workers.push_back(fmt::format("127.0.0.1:{}", listeners.back().port()));
  }
  attendance.place.key = static_cast<uint64_t>(::getpid());
  const pid_t parent = ::getpid();
  std::vector<pid_t> others;
  for (int i = 1; i < processes; ++i) {
    const pid_t pid = ::fork();
    if (pid < 0) break;  // those that are there find the others missing
    if (pid > 0) {
      others.push_back(pid);
      continue;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    attendance.place.index = i;
    attendance.pretended_host = tcp ? i : 0;
    ::_exit(run(attendance, std::move(listeners[static_cast<size_t>(i)]), sizes_bytes).ok() ? 0
                                                                                            : 1);
  }
  auto rates = run(attendance, std::move(listeners[0]), sizes_bytes);
  for (const pid_t pid : others) ::waitpid(pid, nullptr, 0);
  return rates;
}

}  // namespace dtrain::engine
