#include "runner/inventory.h"

#include <fmt/format.h>
#include <pwd.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string_view>

#include "schema/small_file.h"

namespace dtrain::runner {
namespace fs = std::filesystem;
namespace {

std::string_view first_line(std::string_view text) {
  return text.substr(0, text.find('\n'));
}

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

std::optional<double> number_in(const fs::path& path) {
  const auto text = read_small_file(path);
  return text ? number(*text) : std::nullopt;
}

// This process's group in the hierarchy of `controller` ("" is v2), and every group above it.
std::vector<fs::path> own_groups(const std::string& controller) {
  const auto text = read_small_file("/proc/self/cgroup");
  if (!text) return {};
  std::string_view rest = *text;
  std::vector<fs::path> out;
  while (!rest.empty()) {
    const std::string_view line = first_line(rest);
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const size_t a = line.find(':');
    const size_t b = line.find(':', a + 1);
    if (b == std::string_view::npos) continue;
    const std::string names = fmt::format(",{},", line.substr(a + 1, b - a - 1));
    const bool ours = controller.empty() ? names == ",,"
                                         : names.find("," + controller + ",") != std::string::npos;
    if (!ours) continue;
    const fs::path root =
        controller.empty() ? fs::path("/sys/fs/cgroup") : fs::path("/sys/fs/cgroup") / controller;
    // Inside a container the path may be the host's and not be there: the root is the own group
    // then.
    fs::path group = root / fs::path(line.substr(b + 1)).relative_path();
    for (; group != root && group.has_parent_path() && group.string().size() > root.string().size();
         group = group.parent_path()) {
      out.push_back(group);
    }
    out.push_back(root);
  }
  return out;
}

double cpu_quota() {
  double quota = std::numeric_limits<double>::infinity();
  for (const fs::path& group : own_groups("")) {
    const auto text = read_small_file(group / "cpu.max");
    if (!text || text->starts_with("max")) continue;
    const auto used = number(*text);
    const auto period =
        number(std::string_view(*text).substr(std::min(text->size(), text->find(' ') + 1)));
    if (used && period && *period > 0) quota = std::min(quota, *used / *period);
  }
  for (const fs::path& group : own_groups("cpu")) {
    const auto used = number_in(group / "cpu.cfs_quota_us");
    const auto period = number_in(group / "cpu.cfs_period_us");
    if (used && period && *used > 0 && *period > 0) quota = std::min(quota, *used / *period);
  }
  return quota;
}

const GpuFacts* named(const std::vector<GpuFacts>& all, std::string_view word) {
  for (const GpuFacts& gpu : all) {
    if (std::to_string(gpu.index) == word) return &gpu;
    if (word.size() > 4 && gpu.uuid.starts_with(word)) return &gpu;
  }
  return nullptr;
}

}  // namespace

std::string user_of(int pid) {
  struct stat info {};
  if (stat(fmt::format("/proc/{}", pid).c_str(), &info) != 0) return {};
  passwd record{};
  passwd* found = nullptr;
  std::array<char, 4096> buffer{};
  getpwuid_r(info.st_uid, &record, buffer.data(), buffer.size(), &found);
  return found != nullptr ? std::string(record.pw_name) : fmt::format("user {}", info.st_uid);
}

double usable_cpus() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  double cpus = static_cast<double>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) cpus = CPU_COUNT(&mask);
  return std::max(0.01, std::min(cpus, cpu_quota()));
}

uint64_t usable_memory_bytes() {
  uint64_t bytes = static_cast<uint64_t>(std::max(1L, sysconf(_SC_PHYS_PAGES))) *
                   static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto cap = [&bytes](const fs::path& path) {
    const auto limit = number_in(path);
    if (limit && *limit > 0 && *limit < static_cast<double>(bytes))
      bytes = static_cast<uint64_t>(*limit);
  };
  for (const fs::path& group : own_groups("")) cap(group / "memory.max");
  for (const fs::path& group : own_groups("memory")) cap(group / "memory.limit_in_bytes");
  return bytes;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

std::vector<GpuFacts> visible_gpus(const std::vector<GpuFacts>& all,
                                   const std::optional<std::string>& mask) {
  if (!mask) return all;
  std::vector<GpuFacts> out;
  std::string_view rest = *mask;
  while (!rest.empty()) {
    std::string_view word = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    while (word.starts_with(' ')) word.remove_prefix(1);
    while (word.ends_with(' ')) word.remove_suffix(1);
    const GpuFacts* gpu = named(all, word);
    if (gpu == nullptr) break;
    if (std::ranges::find(out, gpu->index, &GpuFacts::index) == out.end()) out.push_back(*gpu);
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.index < b.index; });
  return out;
}

bool carries_launch_key(int pid) {
  const auto text = read_small_file(fmt::format("/proc/{}/environ", pid));
  if (!text) return false;
  constexpr std::string_view kName = "DTRAIN_KEY=";
  return text->starts_with(kName) ||
         text->find(std::string(1, '\0') + std::string(kName)) != std::string::npos;
}

std::string foreign_use(const std::vector<GpuProcess>& processes,
                        const std::function<bool(int pid)>& is_ours) {
  std::string text;
  size_t others = 0;
  for (const GpuProcess& process : processes) {
    if (is_ours(process.pid)) continue;
    if (++others > 1) continue;
    const std::string user = user_of(process.pid);
    text = fmt::format("{}, pid {}", user.empty() ? "a process outside this container" : user,
                       process.pid);
    if (process.memory_bytes > 0) {
      text += fmt::format(", {:.1f} GiB", static_cast<double>(process.memory_bytes) / static_cast<double>(1u << 30));
    }
  }
  if (others > 1) text += fmt::format(" and {} more", others - 1);
  return text;
}

pb::Inventory take_inventory(const InventoryOptions& options, const Nvml& nvml) {
  pb::Inventory inventory;
  inventory.set_name(options.name.empty() ? host_name() : options.name);
  inventory.set_address(options.address);
  inventory.set_cpus(options.cpus.value_or(usable_cpus()));
  inventory.set_memory_bytes(options.memory_bytes.value_or(usable_memory_bytes()));
  inventory.set_cgroup(options.cgroup);
  for (const std::string& what : options.uncapped) inventory.add_uncapped(what);
  for (const std::string& label : options.labels) inventory.add_labels(label);
  inventory.set_gpu_note(nvml.note());
  inventory.set_port_first(options.port_first);
  inventory.set_port_last(options.port_last);
  const char* mask = std::getenv("CUDA_VISIBLE_DEVICES");
  const auto visible = visible_gpus(
      nvml.devices(), mask == nullptr ? std::nullopt : std::make_optional<std::string>(mask));
  for (const GpuFacts& gpu : visible) {
    pb::GpuInfo& info = *inventory.add_gpus();
    info.set_index(static_cast<uint32_t>(gpu.index));
    info.set_name(gpu.name);
    info.set_uuid(gpu.uuid);
    info.set_bus_id(gpu.bus_id);
    if (gpu.numa_node >= 0) info.set_numa_node(static_cast<uint32_t>(gpu.numa_node));
    info.set_memory_bytes(gpu.memory_bytes);
    info.set_busy(foreign_use(nvml.processes(gpu.index), carries_launch_key));
  }
  if (visible.empty() && nvml.note().empty()) {
    inventory.set_gpu_note(
        fmt::format("CUDA_VISIBLE_DEVICES={} hides every GPU from the runner", mask));
  }
  return inventory;
}

}  // namespace dtrain::runner
