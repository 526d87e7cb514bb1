// How fast the scheduler decides, without anything around it: step() and place_pending() on a model of
// many hosts. Prints a table; `--csv` prints it as CSV.
//
//   fill      single-GPU experiments onto 5,000 hosts x 8 GPUs until full, one by one
//   gang      a gang of 128 over 1,000 hosts that are 95 % full: one decision
//   preempt   35,000 single-GPU experiments may give way: what it takes to choose
//   queued    200,000 members wait on a full cluster: one pass, and rebuild() after a restart
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

#include "daemon/lifecycle.h"

namespace {

using namespace dtrain;
using namespace dtrain::daemon;
using Clock = std::chrono::steady_clock;

double micros(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

struct Row {
  std::string what;
  double value;
  std::string unit;
};

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
}

const Policy kPolicy;

void connect_hosts(Model& model, int count) {
  for (int n = 0; n < count; ++n) {
    Host host;
    host.id.hex = fmt::format("{:032x}", n);
    host.name = fmt::format("n{:05}", n);
    host.address = fmt::format("10.0.{}.{}", n / 256, n % 256);
    host.cpus = 64;
    host.memory_bytes = uint64_t{512} << 30;
    for (int gpu = 0; gpu < 8; ++gpu) host.gpus.push_back({gpu, "gpu", ""});
    step(model, HostConnected{host, {}}, kPolicy, 1);
  }
}

std::shared_ptr<Submission> submission(uint32_t number, std::vector<RoleSpec> roles) {
  auto made = std::make_shared<Submission>();
  made->number = number;
  made->spec.project = "bench";
  made->spec.roles = std::move(roles);
  return made;
}

RoleSpec role(Role name, int count, int gpus) {
  RoleSpec made;
  made.role = name;
  made.count = count;
  made.resources.gpus = gpus;
  return made;
}

// Submits and places; the time of the placing pass alone.
double place_one(Model& model, uint32_t number, std::vector<RoleSpec> roles) {
  step(model, Submitted{submission(number, std::move(roles))}, kPolicy, 2);
  const auto begin = Clock::now();
  place_pending(model, kPolicy, 2);
  return micros(Clock::now() - begin);
}

void bench_fill(std::vector<Row>& rows) {
  Model model;
  connect_hosts(model, 5'000);
  std::vector<double> times;
  uint32_t number = 0;
  const auto begin = Clock::now();
  while (number < 40'000) times.push_back(place_one(model, ++number, {role(Role::Train, 1, 1)}));
  const double all = micros(Clock::now() - begin);
  const auto sum = [&](size_t from, size_t to) {
    double total = 0;
    for (size_t i = from; i < to; ++i) total += times[i];
    return static_cast<double>(to - from) / total * 1e6;
  };
  rows.push_back({"fill: placements a second, first tenth", sum(0, 4'000), "1/s"});
  rows.push_back({"fill: placements a second, last tenth", sum(36'000, 40'000), "1/s"});
  rows.push_back({"fill: submitted and placed a second", 40'000 / all * 1e6, "1/s"});
}

void bench_gang(std::vector<Row>& rows) {
  Model model;
  connect_hosts(model, 1'000);
  uint32_t number = 0;
  while (number < 7'600) place_one(model, ++number, {role(Role::Train, 1, 1)});
  std::vector<double> placed, refused;
  for (int round = 0; round < 100; ++round) {
    ++number;
    placed.push_back(place_one(model, number, {role(Role::Master, 1, 1), role(Role::Worker, 127, 1)}));
    // It has not been prepared: its end is a kill and a Released from each replica.
    step(model, KillWanted{{number, 0}, true}, kPolicy, 3);
    for (const Replica& replica : std::vector(model.experiments.at({number, 0}).replicas)) {
      step(model, ReplicaReleased{replica.id, replica.attempt, "", replica.seat.host}, kPolicy, 4);
    }
  }
  for (int round = 0; round < 100; ++round) {
    ++number;
    refused.push_back(place_one(model, number, {role(Role::Master, 1, 1), role(Role::Worker, 511, 1)}));
    step(model, KillWanted{{number, 0}, true}, kPolicy, 5);
  }
  rows.push_back({"gang of 128, 95 % full: placed, p50", quantile(placed, 0.5), "us"});
  rows.push_back({"gang of 128, 95 % full: placed, p99", quantile(placed, 0.99), "us"});
  rows.push_back({"gang of 512 that waits, with its reason, p99", quantile(refused, 0.99), "us"});
}

void bench_queued(std::vector<Row>& rows) {
  Model model;
  connect_hosts(model, 10);
  auto set = submission(1, {role(Role::Train, 1, 1)});
  Parameter parameter{"p", {}};
  for (int n = 0; n < 200'000; ++n) parameter.values.push_back(std::to_string(n));
  set->spec.parameters.push_back(std::move(parameter));
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  auto begin = Clock::now();
  step(model, Submitted{set}, kPolicy, 2);
  rows.push_back({"queued: submit a set of 200,000", micros(Clock::now() - begin) / 1e3, "ms"});
  getrusage(RUSAGE_SELF, &after);
  rows.push_back({"queued: memory of it",
                  static_cast<double>(after.ru_maxrss - before.ru_maxrss) / 1024, "MiB"});
  place_pending(model, kPolicy, 2);
  std::vector<double> passes;
  for (int round = 0; round < 1'000; ++round) {
    model.place_wanted = true;
    begin = Clock::now();
    place_pending(model, kPolicy, 3);
    passes.push_back(micros(Clock::now() - begin));
  }
  rows.push_back({"queued: a pass that places nothing, p99", quantile(passes, 0.99), "us"});
  begin = Clock::now();
  rebuild(model, 4);
  rows.push_back({"queued: rebuild after a restart", micros(Clock::now() - begin) / 1e3, "ms"});
}

// 5,000 hosts, on each of which 7 of 8 GPUs are used by what may give way, and one by what may not.
void bench_preempt(std::vector<Row>& rows) {
  Model model;
  connect_hosts(model, 5'000);
  uint32_t number = 0;
  TimeMs now = 2;
  const auto submit = [&](int priority, bool preemptible, std::vector<RoleSpec> roles) {
    auto made = submission(++number, std::move(roles));
    made->spec.priority = priority;
    made->spec.preemptible = preemptible;
    step(model, Submitted{made}, kPolicy, now);
    const auto begin = Clock::now();
    place_pending(model, kPolicy, now);
    return micros(Clock::now() - begin);
  };
  for (int host = 0; host < 5'000; ++host) {
    submit(90, false, {role(Role::Train, 1, 1)});
    for (int gpu = 0; gpu < 7; ++gpu) submit(50, true, {role(Role::Train, 1, 1)});
  }
  std::vector<double> one, gang, in_vain;
  for (int round = 0; round < 50; ++round) {
    for (auto& [times, roles] : {std::pair{&one, std::vector{role(Role::Train, 1, 1)}},
                                 std::pair{&gang, std::vector{role(Role::Master, 1, 1), role(Role::Worker, 127, 1)}},
                                 std::pair{&in_vain, std::vector{role(Role::Train, 1, 8)}}}) {
      now += 2'000;
      times->push_back(submit(80, false, roles));
      step(model, KillWanted{{number, 0}, true}, kPolicy, now);
      for (const ExperimentId& id : std::set(model.ending)) {
        for (const Replica& replica : std::vector(model.experiments.at(id).replicas)) {
          step(model, ReplicaReleased{replica.id, replica.attempt, "", replica.seat.host}, kPolicy, now);
        }
      }
      place_pending(model, kPolicy, now);
    }
  }
  rows.push_back({"preempt: 35,000 could, one does, p50", quantile(one, 0.5) / 1e3, "ms"});
  rows.push_back({"preempt: 128 do for a gang, p50", quantile(gang, 0.5) / 1e3, "ms"});
  rows.push_back({"preempt: all of them would not do, p50", quantile(in_vain, 0.5) / 1e3, "ms"});
}

}  // namespace

int main(int argc, char** argv) {
  const bool csv = argc > 1 && std::strcmp(argv[1], "--csv") == 0;
  std::vector<Row> rows;
  bench_queued(rows);   // first: it reads the peak of memory
  bench_fill(rows);
  bench_gang(rows);
  bench_preempt(rows);
  for (const Row& row : rows) {
    fmt::print(fmt::runtime(csv ? "{},{:.1f},{}\n" : "{:<48} {:>12.1f} {}\n"), row.what, row.value,
               row.unit);
  }
  return 0;
}
