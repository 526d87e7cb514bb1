#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/monitor.h"
#include "cli/table.h"
#include "cli/words.h"
#include "schema/ids.h"
#include "schema/states.h"

namespace dtrain::cli {

namespace {

// With it and without the GPU columns the table fits a screen of 80 columns.
constexpr size_t kHistoryMax = 15;
constexpr std::string_view kUnknown = "N/A";

std::string percent_of(uint64_t part, uint64_t whole) {
  if (whole == 0) return std::string(kUnknown);
  return fmt::format("{:.1f}", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string used_of_total(uint64_t used_bytes, uint64_t total_bytes) {
  return fmt::format("{} / {}", human_memory(used_bytes),
                     total_bytes == 0 ? std::string(kUnknown) : human_memory(total_bytes));
}

// Running first, then what comes up, what ended, what has not begun.
int rank_of_state(const std::string& word) {
  auto state = parse_state(word);
  if (!state) return 4;
  switch (*state) {
    case State::Running:
    case State::Stopping:
      return 0;
    case State::Building:
    case State::Starting:
    case State::Pending:
    case State::Restarting:
      return 1;
    case State::Failed:
    case State::Killed:
    case State::Lost:
    case State::Finished:
      return 2;
    case State::Created:
    case State::Suspended:
      return 3;
  }
  return 4;
}

struct GpuTotal {
  double utilization_percent = 0;
  uint64_t used_bytes = 0;
  uint64_t total_bytes = 0;
};

GpuTotal total_of(const pb::ReplicaUsage& replica) {
  GpuTotal total;
  for (const pb::GpuUsage& gpu : replica.gpus()) {
    total.utilization_percent += gpu.utilization_percent() / replica.gpus_size();
    total.used_bytes += gpu.memory_used_bytes();
    total.total_bytes += gpu.memory_total_bytes();
  }
  return total;
}

std::vector<Cell> figures_of(const pb::ReplicaUsage& replica) {
  // A replica that does not run has no figures; one that runs but was not measured has unknown
  // ones.
  if (!replica.live()) {
    if (replica.state() != to_string(State::Running)) return {};
    return {{"N/A"}, {"N/A"}, {"N/A / N/A"}, {"N/A"}, {"N/A"}, {"N/A / N/A"}};
  }
  std::vector<Cell> cells = {{fmt::format("{:.0f}", replica.cpu_percent())},
                             {percent_of(replica.memory_bytes(), replica.host_memory_bytes())},
                             {used_of_total(replica.memory_bytes(), replica.host_memory_bytes())}};
  if (replica.gpus_size() == 0) {
    cells.insert(cells.end(), {{"N/A"}, {"N/A"}, {"N/A / N/A"}});
  } else {
    GpuTotal total = total_of(replica);
    cells.insert(cells.end(), {{fmt::format("{:.0f}", total.utilization_percent)},
                               {percent_of(total.used_bytes, total.total_bytes)},
                               {used_of_total(total.used_bytes, total.total_bytes)}});
  }
  return cells;
}

std::string gpu_caption(const pb::ReplicaUsage& replica, bool colours) {
  return paint(replica.replica(), Ink::Bold, colours) + " " +
         paint(replica.state(), ink_of_state(replica.state()), colours) + "\n";
}

}  // namespace

std::vector<const pb::ReplicaUsage*> shown_replicas(const pb::MonitorSample& sample) {
  std::vector<const pb::ReplicaUsage*> shown;
  for (const pb::ReplicaUsage& replica : sample.replicas()) {
    auto id = parse_replica_id(replica.replica());
    bool hidden = id.ok() && (id->role == Role::Build || id->role == Role::Tensorboard);
    if (!hidden) shown.push_back(&replica);
  }
  std::stable_sort(shown.begin(), shown.end(),
                   [](const pb::ReplicaUsage* a, const pb::ReplicaUsage* b) {
                     return rank_of_state(a->state()) < rank_of_state(b->state());
                   });
  return shown;
}

void CpuHistory::add(const pb::MonitorSample& sample) {
  for (const pb::ReplicaUsage& replica : sample.replicas()) {
    if (!replica.live()) continue;
    std::deque<double>& values = samples_[replica.replica()];
    values.push_back(replica.cpu_percent());
    if (values.size() > kHistoryMax) values.pop_front();
  }
}

std::string CpuHistory::sparkline(const std::string& replica) const {
  auto found = samples_.find(replica);
  if (found == samples_.end()) return "";
  // At least one core's worth: the noise of an idle process must not look like work.
  double most = 100;
  for (double value : found->second) most = std::max(most, value);
  return sparkline_of(found->second, most);
}

std::string sparkline_of(const std::deque<double>& values, double most) {
  constexpr std::string_view kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr double kSteps = 8;
  std::string line;
  for (double value : values) {
    double share = most > 0 ? std::clamp(value / most, 0.0, 1.0) : 0;
    line += kBlocks[std::min<size_t>(7, static_cast<size_t>(share * kSteps))];
  }
  return line;
}

std::string render_monitor(const pb::MonitorSample& sample, const CpuHistory* history,
                           const Screen& screen) {
  // Where nobody has a GPU its columns are the first to go, else the history is.
  bool any_gpus = std::any_of(sample.replicas().begin(), sample.replicas().end(),
                              [](const pb::ReplicaUsage& r) { return r.gpus_size() > 0; });
  const int drop_history = any_gpus ? 1 : 2;
  const int drop_gpus = any_gpus ? 2 : 1;
  constexpr int kDropProject = 3;
  constexpr int kDropMemoryShare = 4;
  constexpr int kDropState = 5;
  Table table;
  table.columns = {{"ID", 10},
                   {"PROJECT", 10, kDropProject},
                   {"STATE", 8, kDropState},
                   {"CPU %", 5},
                   {"MEM %", 5, kDropMemoryShare},
                   {"MEM-Used / Total", 19},
                   {"GPU %", 6, drop_gpus},
                   {"GPU-MEM %", 9, drop_gpus},
                   {"GPU-MEM Used/Total", 19, drop_gpus}};
  if (history != nullptr) table.columns.push_back({"CPU HISTORY", kHistoryMax, drop_history});
  for (const pb::ReplicaUsage* replica : shown_replicas(sample)) {
    std::vector<Cell> row = {{replica->replica()},
                             {sample.project()},
                             {replica->state(), ink_of_state(replica->state())}};
    std::vector<Cell> figures = figures_of(*replica);
    figures.resize(6);
    row.insert(row.end(), figures.begin(), figures.end());
    if (history != nullptr) row.push_back({history->sparkline(replica->replica()), Ink::Cyan});
    table.rows.push_back(std::move(row));
  }
  return render(table, screen);
}

std::string render_gpus(const pb::MonitorSample& sample, const Screen& screen) {
  std::string out;
  for (const pb::ReplicaUsage* replica : shown_replicas(sample)) {
    out += gpu_caption(*replica, screen.colours);
    if (replica->gpus_size() == 0) {
      out += replica->live() ? "  has no GPUs\n" : "  no figures at the moment\n";
      continue;
    }
    Table table;
    table.indent = 2;
    table.gap = 2;
    table.columns = {{"ID", 2},        {"NAME", 4, 3, true}, {"UTIL", 5},      {"MEM", 19},
                     {"POWER", 11, 2}, {"TEMP", 4},          {"BUS ID", 12, 1}};
    std::vector<const pb::GpuUsage*> gpus;
    for (const pb::GpuUsage& gpu : replica->gpus()) gpus.push_back(&gpu);
    std::stable_sort(gpus.begin(), gpus.end(), [](const pb::GpuUsage* a, const pb::GpuUsage* b) {
      return a->bus_id() < b->bus_id();
    });
    for (const pb::GpuUsage* gpu : gpus) {
      table.rows.push_back(
          {{fmt::format("{}", gpu->index())},
           {gpu->name()},
           {fmt::format("{:.0f} %", gpu->utilization_percent())},
           {used_of_total(gpu->memory_used_bytes(), gpu->memory_total_bytes())},
           {fmt::format("{:.0f} / {:.0f} W", gpu->power_watts(), gpu->power_limit_watts())},
           {fmt::format("{:.0f} C", gpu->temperature_c())},
           {gpu->bus_id()}});
    }
    out += render(table, screen);
  }
  return out;
}

std::string render_reason(const pb::MonitorSample& sample, const Screen& screen) {
  // Of who was killed it says just that.
  if (sample.reason().empty() || sample.state() == to_string(State::Killed)) return "";
  std::string line = fmt::format("{}: {}", sample.state(), sample.reason());
  if (screen.width > 0) line = cut_to_width(line, screen.width);
  return line + "\n";
}

std::string monitor_json(const std::string& id, const pb::MonitorSample& sample) {
  nlohmann::ordered_json replicas = nlohmann::ordered_json::array();
  for (const pb::ReplicaUsage* replica : shown_replicas(sample)) {
    nlohmann::ordered_json gpus = nlohmann::ordered_json::array();
    for (const pb::GpuUsage& gpu : replica->gpus()) {
      gpus.push_back({{"index", gpu.index()},
                      {"name", gpu.name()},
                      {"uuid", gpu.uuid()},
                      {"bus_id", gpu.bus_id()},
                      {"utilization_percent", gpu.utilization_percent()},
                      {"memory_used_bytes", gpu.memory_used_bytes()},
                      {"memory_total_bytes", gpu.memory_total_bytes()},
                      {"power_watts", gpu.power_watts()},
                      {"temperature_c", gpu.temperature_c()}});
    }
    bool live = replica->live();
    replicas.push_back({{"id", replica->replica()},
                        {"state", replica->state()},
                        {"host", replica->host_name()},
                        {"live", live},
                        {"cpu_percent", live ? nlohmann::ordered_json(replica->cpu_percent()) : nlohmann::ordered_json()},
                        {"memory_bytes", live ? nlohmann::ordered_json(replica->memory_bytes()) : nlohmann::ordered_json()},
                        {"host_memory_bytes", replica->host_memory_bytes()},
                        {"read_bytes", live ? nlohmann::ordered_json(replica->read_bytes()) : nlohmann::ordered_json()},
                        {"written_bytes", live ? nlohmann::ordered_json(replica->written_bytes()) : nlohmann::ordered_json()},
                        {"gpus", gpus}});
  }
  nlohmann::ordered_json object = {
      {"id", id}, {"project", sample.project()}, {"state", sample.state()},
      {"reason", sample.reason().empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(sample.reason())}, {"replicas", replicas}};
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace dtrain::cli
