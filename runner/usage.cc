#include "runner/usage.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <string_view>

#include "schema/clock.h"

namespace dtrain::runner {
namespace {

constexpr std::chrono::milliseconds kEvery{1000};
constexpr std::chrono::milliseconds kFirst{250};  // what the first rates are taken over

void add_gpus(const Nvml& nvml, std::string_view visible, pb::ReplicaUsage& usage) {
  while (!visible.empty()) {
    const std::string_view word = visible.substr(0, visible.find(','));
    visible.remove_prefix(std::min(visible.size(), word.size() + 1));
    int index = -1;
    std::from_chars(word.data(), word.data() + word.size(), index);
    const auto facts = std::find_if(nvml.devices().begin(), nvml.devices().end(),
                                    [index](const GpuFacts& each) { return each.index == index; });
    if (facts == nvml.devices().end()) continue;
    const GpuLoad load = nvml.load(index);
    pb::GpuUsage& gpu = *usage.add_gpus();
    gpu.set_index(static_cast<uint32_t>(index));
    gpu.set_name(facts->name);
    gpu.set_uuid(facts->uuid);
    gpu.set_bus_id(facts->bus_id);
    gpu.set_utilization_percent(load.utilization_percent);
    gpu.set_memory_used_bytes(load.memory_used_bytes);
    gpu.set_memory_total_bytes(facts->memory_bytes);
    gpu.set_power_watts(load.power_watts);
    gpu.set_power_limit_watts(load.power_limit_watts);
    gpu.set_temperature_c(load.temperature_c);
  }
}

}  // namespace

UsageMonitor::UsageMonitor(boost::asio::io_context& loop, UsageOptions options, Outbox& outbox,
                           const Launches& launches)
    : options_(std::move(options)), outbox_(outbox), launches_(launches), timer_(loop) {}

void UsageMonitor::watch(std::set<std::string> experiments) {
  const bool was_idle = watched_.empty();
  watched_ = std::move(experiments);
  if (watched_.empty()) {
    timer_.cancel();
    before_.clear();
  } else if (was_idle) {
    sample();
  }
}

void UsageMonitor::schedule(std::chrono::milliseconds after) {
  timer_.expires_after(after);
  timer_.async_wait([this](boost::system::error_code error) {
    if (!error && !watched_.empty()) sample();
  });
}

bool UsageMonitor::is_watched(const HeldLaunch& launch) const {
  const ExperimentId& id = launch.file().experiment;
  return watched_.contains(to_string(id)) || watched_.contains(to_string(id.set()));
}

void UsageMonitor::sample() {
  pb::FromRunner message;
  pb::UsageReport& report = *message.mutable_usage();
  std::map<std::string, Before> now;
  std::optional<ProcessTable> table;   // one for all
  for (const auto& [id, launch] : launches_) {
    if (!is_watched(*launch)) continue;
    for (const auto& replica : launch->replicas()) {
      if (!replica->started() || replica->exited()) continue;
      if (!table) table = ProcessTable::read();
      add(*launch, *replica, *table, report, now);
    }
  }
  before_ = std::move(now);
  const bool rates_nothing_yet = report.replicas_size() == 0 && !before_.empty();
  if (report.replicas_size() > 0) outbox_.send(std::move(message));
  schedule(rates_nothing_yet ? kFirst : kEvery);
}

void UsageMonitor::add(const HeldLaunch& launch, const Replica& replica, const ProcessTable& table, pb::UsageReport& report,
                       std::map<std::string, Before>& now) {
  const auto& all = launch.file().replicas;
  const auto described = std::find_if(
      all.begin(), all.end(), [&](const ReplicaLaunch& each) { return each.id == replica.id(); });
  if (described == all.end()) return;
  const TreeUsage used =
      tree_usage(table, marks_of_replica(launch.file(), *described, replica.start()->process));

  // A rate is of the time since the last look: the first one only begins it.
  const std::string key = fmt::format("{}@{}", to_string(replica.id()), replica.attempt());
  const Before current{boottime_ms(), used.cpu_seconds};
  now.emplace(key, current);
  const auto last = before_.find(key);
  if (last == before_.end()) return;

  pb::ReplicaUsage& usage = *report.add_replicas();
  usage.set_replica(to_string(replica.id()));
  usage.set_live(true);
  usage.set_memory_bytes(used.memory_bytes);
  usage.set_read_bytes(used.read_bytes);
  usage.set_written_bytes(used.written_bytes);
  usage.set_host_memory_bytes(options_.host_memory_bytes);
  usage.set_host_cpus(options_.host_cpus);
  usage.set_host_name(options_.host_name);
  const double seconds = static_cast<double>(current.at_ms - last->second.at_ms) / 1e3;
  const double cpu = used.cpu_seconds - last->second.cpu_seconds;
  if (seconds > 0) usage.set_cpu_percent(std::max(0.0, 100 * cpu / seconds));

  const auto visible = described->env.find("CUDA_VISIBLE_DEVICES");
  if (options_.nvml != nullptr && visible != described->env.end()) {
    add_gpus(*options_.nvml, visible->second, usage);
  }
}

}  // namespace dtrain::runner
