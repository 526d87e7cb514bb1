#include "runner/cgroup.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <sstream>
#include <system_error>

#include "schema/small_file.h"

namespace dtrain::runner {
namespace {

namespace fs = std::filesystem;

// The group a runner moves itself to, so that the one above may hand out controllers.
constexpr const char* kRunnerLeaf = "dtrain-runner";

// A hierarchy, and this process's group in it.
struct Hierarchy {
  bool v2 = false;
  std::vector<std::string> controllers;  // of v1; "name=x" for a named one
  fs::path own;                          // directory
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

bool contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// This process's path in the hierarchy with that controller, from lines "7:cpu,cpuacct:/path"; the
// v2 line has neither number nor controller.
std::optional<std::string> own_path(const std::vector<std::string>& lines, bool v2,
                                    const std::vector<std::string>& options) {
  for (const std::string& line : lines) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (v2 ? controllers.empty()
           : !controllers.empty() && contains(options, split(controllers, ',').front())) {
      return line.substr(second + 1);
    }
  }
  return std::nullopt;
}

std::vector<Hierarchy> hierarchies() {
  const auto groups = split(read_small_file("/proc/self/cgroup").value_or(""), '\n');
  std::vector<Hierarchy> found;
  for (const auto& line : split(read_small_file("/proc/self/mountinfo").value_or(""), '\n')) {
    // "36 35 98:0 /root /mountpoint options... - type source superoptions"
    const auto words = split(line, ' ');
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 5 || words.end() - dash < 4) continue;
    const bool v2 = dash[1] == "cgroup2";
    if (!v2 && dash[1] != "cgroup") continue;
    const auto options = split(dash[3], ',');
    auto path = own_path(groups, v2, options);
    if (!path) continue;
    // A container sees its own group as the root of the mount.
    const std::string& root = words[3];
    if (root != "/" && path->starts_with(root)) path->erase(0, root.size());
    Hierarchy hierarchy{v2, options, fs::path(words[4] + *path).lexically_normal()};
    if (hierarchy.own.filename().empty()) hierarchy.own = hierarchy.own.parent_path();
    if (hierarchy.own.filename() == kRunnerLeaf) hierarchy.own = hierarchy.own.parent_path();
    found.push_back(std::move(hierarchy));
  }
  return found;
}

constexpr std::string_view kProbe = "dtrain-probe.";

// Of runners that were killed while they looked.
void remove_probes_of_the_dead(const fs::path& directory) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kProbe)) continue;
    const pid_t pid = std::atoi(name.c_str() + kProbe.size());
    if (pid > 0 && ::kill(pid, 0) != 0 && errno == ESRCH) ::rmdir(entry.path().c_str());
  }
}

// Empty: groups can be made below it and joined. Else why not.
std::string why_unusable(const fs::path& directory) {
  remove_probes_of_the_dead(directory);
  const fs::path probe = directory / fmt::format("{}{}", kProbe, ::getpid());
  if (::mkdir(probe.c_str(), 0755) != 0) {
    return fmt::format("cannot make a group in {}: {}", directory.string(),
                       std::system_category().message(errno));
  }
  const bool joinable = ::access((probe / "cgroup.procs").c_str(), W_OK) == 0;
  ::rmdir(probe.c_str());
  return joinable ? "" : fmt::format("cannot join groups in {}", directory.string());
}

const Hierarchy* find_v1(const std::vector<Hierarchy>& all, const std::string& controller) {
  for (const Hierarchy& hierarchy : all) {
    if (!hierarchy.v2 && contains(hierarchy.controllers, controller)) return &hierarchy;
  }
  return nullptr;
}

// Lets groups below `directory` have these controllers. A group with processes of its own can't
// (the root can), so this process steps aside if it is alone there.
Status enable_controllers(const fs::path& directory, const std::string& words) {
  Status enabled = write_switch(directory / "cgroup.subtree_control", words);
  if (enabled.ok()) return enabled;
  const auto members = split(read_small_file(directory / "cgroup.procs").value_or(""), '\n');
  if (members.size() != 1 || members[0] != std::to_string(::getpid())) return enabled;
  const fs::path leaf = directory / kRunnerLeaf;
  if (::mkdir(leaf.c_str(), 0755) != 0 && errno != EEXIST) return enabled;
  TRY(write_switch(leaf / "cgroup.procs", "0"));
  return write_switch(directory / "cgroup.subtree_control", words);
}

void claim_v2(const std::vector<Hierarchy>& all, CgroupSupport& support) {
  for (const Hierarchy& hierarchy : all) {
    if (!hierarchy.v2) continue;
    support.note = why_unusable(hierarchy.own);
    if (!support.note.empty()) continue;
    support.kind = "v2";
    support.tracking = hierarchy.own;
    const auto listed = read_small_file(hierarchy.own / "cgroup.controllers").value_or("");
    std::string wanted;
    for (const std::string& controller : split(listed.substr(0, listed.find('\n')), ' ')) {
      if (controller == "cpu" || controller == "memory" || controller == "io") {
        wanted += "+" + controller + " ";
      }
    }
    if (wanted.empty()) return;
    if (Status status = enable_controllers(hierarchy.own, wanted); !status.ok()) {
      support.note = "no limits: " + status.error().message;
      return;
    }
    if (wanted.find("+cpu") != std::string::npos) support.cpu = hierarchy.own;
    if (wanted.find("+memory") != std::string::npos) support.memory = hierarchy.own;
    return;
  }
}

void claim_v1(const std::vector<Hierarchy>& all, CgroupSupport& support) {
  const auto usable = [&](const char* controller) -> const Hierarchy* {
    const Hierarchy* hierarchy = find_v1(all, controller);
    if (hierarchy == nullptr) return nullptr;
    const std::string why = why_unusable(hierarchy->own);
    if (!why.empty()) support.note = why;
    return why.empty() ? hierarchy : nullptr;
  };
  // The freezer first: a frozen group can't fork while it is killed.
  for (const char* controller : {"freezer", "pids", "memory", "cpu", "devices"}) {
    if (!support.tracking.empty()) break;
    if (const Hierarchy* hierarchy = usable(controller)) {
      support.kind = "v1";
      support.tracking = hierarchy->own;
    }
  }
  if (support.cpu.empty()) {
    if (const Hierarchy* hierarchy = usable("cpu")) support.cpu = hierarchy->own;
  }
  if (support.memory.empty()) {
    if (const Hierarchy* hierarchy = usable("memory")) support.memory = hierarchy->own;
  }
}

bool is_v2(const fs::path& group) {
  return ::access((group / "cgroup.events").c_str(), F_OK) == 0;
}

Status make_group(const fs::path& group) {
  if (::mkdir(group.c_str(), 0755) != 0 && errno != EEXIST) {
    return errno_error("mkdir " + group.string(), errno);
  }
  return ok();
}

Status set_cpu(const fs::path& group, const CgroupLimits& limits) {
  const auto scaled = [&](double per_cpu, double low, double high) {
    return std::to_string(std::lround(std::clamp(limits.cpus * per_cpu, low, high)));
  };
  if (is_v2(group)) {
    TRY(write_switch(group / "cpu.weight", scaled(100, 1, 10'000)));
    if (limits.cpus_hard)
      TRY(write_switch(group / "cpu.max", scaled(100'000, 1'000, 1e12) + " 100000"));
    return ok();
  }
  TRY(write_switch(group / "cpu.shares", scaled(1024, 2, 262'144)));
  if (limits.cpus_hard) {
    TRY(write_switch(group / "cpu.cfs_period_us", "100000"));
    TRY(write_switch(group / "cpu.cfs_quota_us", scaled(100'000, 1'000, 1e12)));
  }
  return ok();
}

Status set_memory(const fs::path& group, const CgroupLimits& limits) {
  if (limits.memory_bytes == 0) return ok();
  const std::string bytes = std::to_string(limits.memory_bytes);
  const bool v2 = is_v2(group);
  TRY(write_switch(group / (v2 ? "memory.low" : "memory.soft_limit_in_bytes"), bytes));
  if (!limits.memory_hard) return ok();
  return write_switch(group / (v2 ? "memory.max" : "memory.limit_in_bytes"), bytes);
}

// The launch's own group: as heavy as its replicas together, capped by none.
Status make_launch_group(const CgroupSupport& support, const fs::path& directory,
                         const fs::path& group, const CgroupLimits& sum) {
  TRY(make_group(group));
  if (is_v2(group)) {
    const auto controllers = read_small_file(group / "cgroup.controllers").value_or("");
    for (const char* controller : {"cpu", "memory", "io"}) {
      if (!contains(split(controllers.substr(0, controllers.find('\n')), ' '), controller))
        continue;
      TRY(write_switch(group / "cgroup.subtree_control", fmt::format("+{}", controller)));
    }
  }
  if (directory == support.cpu) TRY(set_cpu(group, sum));
  if (directory == support.memory) TRY(set_memory(group, sum));
  return ok();
}

std::optional<uint64_t> read_number(const fs::path& path) {
  const auto text = read_small_file(path);
  if (!text || text->empty() || !std::isdigit(static_cast<unsigned char>((*text)[0]))) {
    return std::nullopt;
  }
  return std::strtoull(text->c_str(), nullptr, 10);
}

// The number after a word at the start of a line: "oom_kill 3".
std::optional<uint64_t> read_field(const fs::path& path, const std::string& word) {
  const auto text = read_small_file(path);
  if (!text) return std::nullopt;
  for (const std::string& line : split(*text, '\n')) {
    if (line.starts_with(word + " ")) return std::strtoull(line.c_str() + word.size(), nullptr, 10);
  }
  return std::nullopt;
}

// What its processes need: the cache of files that nobody has touched lately can go at any time.
std::optional<uint64_t> working_set(const fs::path& group, const char* usage, const char* cache) {
  const auto used = read_number(group / usage);
  if (!used) return std::nullopt;
  return *used - std::min(*used, read_field(group / "memory.stat", cache).value_or(0));
}

// "8:0 rbytes=1 wbytes=2 rios=..." a device.
void add_io(const fs::path& group, CgroupUsage& usage) {
  const auto text = read_small_file(group / "io.stat");
  if (!text) return;
  usage.read_bytes = usage.read_bytes.value_or(0);
  usage.written_bytes = usage.written_bytes.value_or(0);
  for (const std::string& word : split(*text, ' ')) {
    if (word.starts_with("rbytes="))
      *usage.read_bytes += std::strtoull(word.c_str() + 7, nullptr, 10);
    if (word.starts_with("wbytes=")) {
      *usage.written_bytes += std::strtoull(word.c_str() + 7, nullptr, 10);
    }
  }
}

Status remove_group(const fs::path& group) {
  if (::rmdir(group.c_str()) == 0 || errno == ENOENT) return ok();
  std::error_code error;
  for (fs::directory_iterator entry(group, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    if (entry->is_directory(error)) TRY(remove_group(entry->path()));
  }
  if (::rmdir(group.c_str()) == 0 || errno == ENOENT) return ok();
  if (errno == EBUSY) {
    return Error{Code::FailedPrecondition, fmt::format("a process is still in {}", group.string()),
                 ""};
  }
  return errno_error("rmdir " + group.string(), errno);
}

}  // namespace

CgroupSupport claim_cgroups(CgroupChoice choice) {
  CgroupSupport support;
  if (choice == CgroupChoice::None) {
    support.note = "not wanted";
    return support;
  }
  const std::vector<Hierarchy> all = hierarchies();
  if (choice == CgroupChoice::Best) claim_v2(all, support);
  claim_v1(all, support);
  if (support.kind == "none" && support.note.empty()) support.note = "no cgroups are mounted";
  return support;
}

std::vector<std::string> uncapped(const CgroupSupport& support) {
  std::vector<std::string> what;
  if (support.cpu.empty()) what.push_back("cpus");
  if (support.memory.empty()) what.push_back("mem");
  return what;
}

Status make_launch_cgroups(const CgroupSupport& support,
                           const std::map<ReplicaId, CgroupLimits>& limits, LaunchRecord& launch) {
  CgroupLimits sum{0, false, 0, false};
  bool caps_cpu = false;
  bool caps_memory = false;
  for (const auto& [id, limit] : limits) {
    sum.cpus += limit.cpus;
    sum.memory_bytes += limit.memory_bytes;
    caps_cpu = caps_cpu || limit.cpus_hard;
    caps_memory = caps_memory || limit.memory_hard;
  }
  if ((caps_cpu && support.cpu.empty()) || (caps_memory && support.memory.empty())) {
    return Error{Code::FailedPrecondition,
                 fmt::format("no hard limit can be kept here: {}", support.note), ""};
  }
  std::vector<fs::path> directories;
  const auto use = [&directories](const fs::path& directory) {
    if (directory.empty()) return;
    if (std::find(directories.begin(), directories.end(), directory) == directories.end()) {
      directories.push_back(directory);
    }
  };
  use(support.tracking);
  if (caps_cpu) use(support.cpu);
  if (caps_memory) use(support.memory);
  const auto make = [&]() -> Status {
    for (const fs::path& directory : directories) {
      const fs::path group = directory / ("dtrain." + launch.key);
      TRY(make_launch_group(support, directory, group, sum));
      for (ReplicaLaunch& replica : launch.replicas) {
        const auto limit = limits.find(replica.id);
        if (limit == limits.end()) continue;
        const fs::path own = group / to_string(replica.id);
        TRY(make_group(own));
        replica.cgroups.push_back(own.string());
        if (directory == support.cpu) TRY(set_cpu(own, limit->second));
        if (directory == support.memory) TRY(set_memory(own, limit->second));
      }
    }
    return ok();
  };
  Status made = make();
  if (!made.ok()) {
    (void)remove_launch_cgroups(launch);
    for (const fs::path& directory : directories) {
      (void)remove_group(directory / ("dtrain." + launch.key));
    }
    for (ReplicaLaunch& replica : launch.replicas) replica.cgroups.clear();
  }
  return made;
}

void remove_begun_cgroups(const CgroupSupport& support, const std::string& key) {
  for (const fs::path& directory : {support.tracking, support.cpu, support.memory}) {
    if (!directory.empty()) (void)remove_group(directory / ("dtrain." + key));
  }
}

Status remove_launch_cgroups(const LaunchRecord& launch) {
  for (const ReplicaLaunch& replica : launch.replicas) {
    TRY(remove_cgroups(replica.cgroups));
  }
  for (const ReplicaLaunch& replica : launch.replicas) {
    for (const std::string& group : replica.cgroups) {
      TRY(remove_group(fs::path(group).parent_path()));
    }
  }
  return ok();
}

Status remove_cgroups(const std::vector<std::string>& directories) {
  for (const std::string& group : directories) TRY(remove_group(group));
  return ok();
}

std::vector<pid_t> cgroup_members(const std::vector<std::string>& directories) {
  std::vector<pid_t> members;
  if (directories.empty()) return members;
  const auto collect = [&](const fs::path& group) {
    for (const auto& line : split(read_small_file(group / "cgroup.procs").value_or(""), '\n')) {
      const auto pid = static_cast<pid_t>(std::strtol(line.c_str(), nullptr, 10));
      if (pid > 0) members.push_back(pid);  // 0: it has no number here
    }
  };
  collect(directories[0]);
  // Groups that the replica made for itself.
  std::error_code error;
  for (fs::recursive_directory_iterator entry(directories[0], error);
       !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (entry->is_directory(error)) collect(entry->path());
  }
  return members;
}

bool cgroup_kill(const std::vector<std::string>& directories) {
  if (directories.empty()) return false;
  const fs::path group = directories[0];
  if (write_switch(group / "cgroup.kill", "1").ok()) return true;
  if (!write_switch(group / "freezer.state", "FROZEN").ok()) return false;
  for (const pid_t pid : cgroup_members(directories)) ::kill(pid, SIGKILL);
  return write_switch(group / "freezer.state", "THAWED").ok();
}

uint64_t memory_kills_since_boot() { return read_field("/proc/vmstat", "oom_kill").value_or(0); }

CgroupUsage cgroup_usage(const std::vector<std::string>& directories) {
  CgroupUsage usage;
  for (const std::string& name : directories) {
    const fs::path group = name;
    if (const auto microseconds = read_field(group / "cpu.stat", "usage_usec")) {
      usage.cpu_seconds = static_cast<double>(*microseconds) / 1e6;
    } else if (const auto nanoseconds = read_number(group / "cpuacct.usage")) {
      usage.cpu_seconds = static_cast<double>(*nanoseconds) / 1e9;
    }
    if (const auto used = working_set(group, "memory.current", "inactive_file")) {
      usage.memory_bytes = used;
      usage.memory_peak_bytes = read_number(group / "memory.peak");
      usage.memory_kills = read_field(group / "memory.events", "oom_kill").value_or(0);
      usage.memory_limit_bytes = read_number(group / "memory.max");
    } else if (const auto used_v1 =
                   working_set(group, "memory.usage_in_bytes", "total_inactive_file")) {
      usage.memory_bytes = used_v1;
      usage.memory_peak_bytes = read_number(group / "memory.max_usage_in_bytes");
      usage.memory_kills = read_field(group / "memory.oom_control", "oom_kill").value_or(0);
      usage.memory_limit_bytes = read_number(group / "memory.limit_in_bytes");
    }
    add_io(group, usage);
  }
  return usage;
}

}  // namespace dtrain::runner
