#include "runner/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <unordered_set>

#include "runner/cgroup.h"
#include "schema/fd.h"
#include "runner/launch_facts.h"
#include "schema/small_file.h"
#include "schema/clock.h"

namespace dtrain::runner {
namespace {

bool is_scarce(int errno_value) {
  return errno_value == EMFILE || errno_value == ENFILE || errno_value == ENOMEM;
}

// Calls visit(number) for each entry of a directory whose name is a number. False when there was no
// descriptor for that.
template <typename Visit>
bool for_each_number(const char* directory, Visit visit) {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(directory), ::closedir);
  if (!entries) return !is_scarce(errno);
  while (const dirent* entry = ::readdir(entries.get())) {
    const char* end = entry->d_name + std::strlen(entry->d_name);
    int number = 0;
    const auto parsed = std::from_chars(entry->d_name, end, number);
    if (parsed.ec == std::errc() && parsed.ptr == end) visit(number);
  }
  return true;
}

// One read without allocating: a table is read for every end of a replica.
size_t read_into(const char* path, char* buffer, size_t capacity) {
  const Fd fd(::open(path, O_RDONLY | O_CLOEXEC));
  if (!fd) return 0;
  const ssize_t got = ::read(fd.get(), buffer, capacity);
  return got > 0 ? static_cast<size_t>(got) : 0;
}

bool read_row(pid_t pid, ProcessRow& row) {
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  char text[1024];
  const size_t size = read_into(path, text, sizeof text - 1);
  text[size] = '\0';
  // The program's name, in brackets, may hold anything: fields count from the last bracket.
  const char* at = std::strrchr(text, ')');
  if (at == nullptr) return false;
  uint64_t ticks[4] = {};
  uint64_t resident_pages = 0;
  const int fields = std::sscanf(
      at + 1,
      " %c %d %*d %d %*d %*d %*u %*u %*u %*u %*u %lu %lu %lu %lu %*d %*d %d %*d %lu %*u %lu",
      &row.state, &row.parent, &row.session, &ticks[0], &ticks[1], &ticks[2], &ticks[3],
      &row.threads, &row.start_ticks, &resident_pages);
  if (fields != 10) return false;
  row.pid = pid;
  row.cpu_ticks = ticks[0] + ticks[1] + ticks[2] + ticks[3];
  row.resident_bytes = resident_pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return true;
}

// Of a process that is gone there is none.
void add_row(pid_t pid, ProcessTable& table) {
  ProcessRow row;
  errno = 0;
  if (read_row(pid, row)) {
    table.rows.emplace(pid, row);
  } else if (is_scarce(errno)) {
    table.whole = false;
  }
}

// Where the first of several threads has ended, the others go on.
bool is_dead(const ProcessRow& row) {
  return (row.state == 'Z' || row.state == 'X') && row.threads <= 1;
}

using Children = std::unordered_map<pid_t, std::vector<pid_t>>;

Children children_of(const ProcessTable& table) {
  Children children;
  for (const auto& [pid, row] : table.rows) children[row.parent].push_back(pid);
  return children;
}

bool has_variable(std::string_view environment, std::string_view name, std::string_view value) {
  while (!environment.empty()) {
    const size_t end = std::min(environment.find('\0'), environment.size());
    const std::string_view variable = environment.substr(0, end);
    if (variable.size() == name.size() + 1 + value.size() && variable.starts_with(name) &&
        variable[name.size()] == '=' && variable.ends_with(value)) {
      return true;
    }
    environment.remove_prefix(std::min(end + 1, environment.size()));
  }
  return false;
}

// What the process was started with; empty when it belongs to someone else.
bool carries_key(pid_t pid, const TreeMarks& marks) {
  if (marks.key.empty()) return false;
  const auto environment = read_small_file(fmt::format("/proc/{}/environ", pid));
  return environment && has_variable(*environment, "DTRAIN_KEY", marks.key) &&
         (marks.replica.empty() || has_variable(*environment, "DTRAIN_REPLICA", marks.replica));
}

bool holds_pipe(pid_t pid, const TreeMarks& marks) {
  const std::vector<uint64_t>& inodes = marks.pipe_inodes;
  if (inodes.empty()) return false;
  const std::string folder = fmt::format("/proc/{}/fd", pid);
  bool found = false;
  for_each_number(folder.c_str(), [&](int fd) {
    if (found) return;
    char target[64];
    const ssize_t size =
        ::readlink(fmt::format("{}/{}", folder, fd).c_str(), target, sizeof target - 1);
    if (size <= 0) return;
    target[size] = '\0';
    unsigned long inode = 0;
    found = std::sscanf(target, "pipe:[%lu]", &inode) == 1 &&
            std::find(inodes.begin(), inodes.end(), inode) != inodes.end();
  });
  return found;
}

// A session keeps the number of its leader even after that died. Another process that got the
// number later has another start time, so its session is not ours.
bool in_session(const ProcessTable& table, const ProcessRow& row,
                const std::vector<ProcessIdentity>& sessions) {
  for (const ProcessIdentity& leader : sessions) {
    if (row.session != leader.pid) continue;
    const auto now = table.rows.find(leader.pid);
    if (now == table.rows.end() || now->second.start_ticks == leader.start_ticks) return true;
  }
  return false;
}

Fd open_process(const ProcessRow& row) {
  Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, row.pid, 0)));
  ProcessRow now;
  if (!pidfd || !read_row(row.pid, now) || now.start_ticks != row.start_ticks) return Fd();
  return pidfd;
}

void wait_for_ends(const std::vector<ProcessRow>& processes, int timeout_ms) {
  const int64_t deadline_ms = boottime_ms() + timeout_ms;
  for (const ProcessRow& row : processes) {
    const Fd pidfd = open_process(row);
    if (!pidfd) continue;
    pollfd entry{pidfd.get(), POLLIN, 0};
    ::poll(&entry, 1, static_cast<int>(std::max<int64_t>(0, deadline_ms - boottime_ms())));
  }
}

}  // namespace

ProcessTable ProcessTable::read() {
  ProcessTable table;
  const bool listed = for_each_number("/proc", [&](int pid) { add_row(pid, table); });
  table.whole = table.whole && listed;
  return table;
}

namespace {

// By the kernel's own list, which some are built without: then false.
bool list_children(pid_t pid, std::vector<pid_t>& children) {
  const std::string threads = fmt::format("/proc/{}/task", pid);
  bool listed = false;
  for_each_number(threads.c_str(), [&](int thread) {
    const auto text = read_small_file(fmt::format("{}/{}/children", threads, thread));
    if (!text) return;
    listed = true;
    const char* at = text->data();
    const char* const end = at + text->size();
    for (int child = 0; at < end;) {
      const auto parsed = std::from_chars(at, end, child);
      if (parsed.ec == std::errc()) children.push_back(child);
      at = std::max(parsed.ptr, at) + 1;
    }
  });
  return listed;
}

// A row is read before what is below it is: what is seen dead here leaves nobody behind later.
std::optional<ProcessTable> walk_below(pid_t ancestor) {
  ProcessTable table;
  std::vector<pid_t> next;
  if (!list_children(ancestor, next)) return std::nullopt;
  while (!next.empty()) {
    const pid_t pid = next.back();
    next.pop_back();
    if (table.rows.contains(pid)) continue;
    add_row(pid, table);
    if (table.rows.contains(pid)) list_children(pid, next);
  }
  return table;
}

bool same_life(const ProcessTable& a, const ProcessTable& b) {
  return a.rows.size() == b.rows.size() &&
         std::all_of(a.rows.begin(), a.rows.end(), [&b](const auto& entry) {
           const auto other = b.rows.find(entry.first);
           return other != b.rows.end() && is_dead(other->second) == is_dead(entry.second);
         });
}

}  // namespace

// Who dies during a walk leaves its children to us, behind the walk's back. So a walk counts only
// when the one before it saw the same.
ProcessTable ProcessTable::read_below_self() {
  constexpr int kWalksMax = 5;
  std::optional<ProcessTable> before;
  for (int i = 0; i < kWalksMax; ++i) {
    std::optional<ProcessTable> now = walk_below(::getpid());
    if (!now) break;
    if (before && same_life(*before, *now)) return std::move(*now);
    before = std::move(now);
  }
  return read();
}

std::vector<ProcessRow> find_tree(const ProcessTable& table, const TreeMarks& marks) {
  std::unordered_set<pid_t> members;
  for (const auto& directories : marks.cgroups) {
    for (const pid_t pid : cgroup_members(directories)) members.insert(pid);
  }
  const Children children = children_of(table);
  std::unordered_set<pid_t> found;
  const auto add = [&](pid_t root) {
    std::vector<pid_t> next{root};
    while (!next.empty()) {
      const pid_t pid = next.back();
      next.pop_back();
      const auto below = children.find(pid);
      if (!found.insert(pid).second || below == children.end()) continue;
      next.insert(next.end(), below->second.begin(), below->second.end());
    }
  };
  // Cheap marks first: what descends from a match needs no look at its environment.
  const auto look = [&](auto&& matches) {
    for (const auto& [pid, row] : table.rows) {
      if (!found.contains(pid) && matches(row)) add(pid);
    }
  };
  look([&](const ProcessRow& row) { return members.contains(row.pid); });
  look([&](const ProcessRow& row) { return in_session(table, row, marks.sessions); });
  look([&](const ProcessRow& row) { return !is_dead(row) && carries_key(row.pid, marks); });
  look([&](const ProcessRow& row) { return !is_dead(row) && holds_pipe(row.pid, marks); });

  std::vector<ProcessRow> alive;
  for (const pid_t pid : found) {
    const auto row = table.rows.find(pid);
    if (row == table.rows.end() || is_dead(row->second) || pid == ::getpid()) continue;
    alive.push_back(row->second);
  }
  return alive;
}

std::vector<std::vector<ProcessRow>> split_tree(const ProcessTable& table, pid_t ancestor,
                                                const std::vector<TreeMarks>& replicas) {
  const size_t nobody = replicas.size();
  std::unordered_map<pid_t, size_t> group_members;  // read when a process needs it
  bool groups_read = false;
  const auto by_group = [&](pid_t pid) {
    for (size_t i = 0; i < replicas.size() && !groups_read; ++i) {
      for (const auto& directories : replicas[i].cgroups) {
        for (const pid_t member : cgroup_members(directories)) group_members.emplace(member, i);
      }
    }
    groups_read = true;
    const auto member = group_members.find(pid);
    return member == group_members.end() ? nobody : member->second;
  };
  const auto owner_of = [&](const ProcessRow& row) {
    const auto first = [&](auto&& matches) {
      return static_cast<size_t>(std::find_if(replicas.begin(), replicas.end(), matches) -
                                 replicas.begin());
    };
    size_t owner =
        first([&](const TreeMarks& marks) { return in_session(table, row, marks.sessions); });
    if (owner == nobody) owner = by_group(row.pid);
    if (owner != nobody || is_dead(row)) return owner;
    owner = first([&](const TreeMarks& marks) { return carries_key(row.pid, marks); });
    if (owner != nobody) return owner;
    return first([&](const TreeMarks& marks) { return holds_pipe(row.pid, marks); });
  };

  const Children children = children_of(table);
  std::vector<std::vector<ProcessRow>> trees(replicas.size() + 1);
  std::vector<std::pair<pid_t, size_t>> next{{ancestor, nobody}};
  while (!next.empty()) {
    const auto [parent, parent_owner] = next.back();
    next.pop_back();
    const auto below = children.find(parent);
    if (below == children.end()) continue;
    for (const pid_t pid : below->second) {
      const ProcessRow& row = table.rows.at(pid);
      const size_t owner = parent_owner != nobody ? parent_owner : owner_of(row);
      if (!is_dead(row)) trees[owner].push_back(row);
      next.push_back({pid, owner});
    }
  }
  return trees;
}

int signal_processes(const std::vector<ProcessRow>& processes, int signal) {
  int reached = 0;
  for (const ProcessRow& row : processes) {
    const Fd pidfd = open_process(row);
    if (pidfd && ::syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0) == 0) ++reached;
    // A stopped process would sleep through anything but KILL.
    if (pidfd && row.state == 'T' && signal != SIGKILL) {
      ::syscall(SYS_pidfd_send_signal, pidfd.get(), SIGCONT, nullptr, 0);
    }
  }
  return reached;
}

Result<std::vector<ProcessRow>> kill_tree(const TreeMarks& marks, int64_t give_up_ms) {
  const int64_t deadline_ms = boottime_ms() + give_up_ms;
  for (;;) {
    for (const auto& directories : marks.cgroups) cgroup_kill(directories);
    const ProcessTable table = ProcessTable::read();
    const std::vector<ProcessRow> alive = find_tree(table, marks);
    if (!table.whole) {
      signal_processes(alive, SIGKILL);
      return Error{Code::ResourceExhausted, "no descriptors to see which processes there are", ""};
    }
    if (alive.empty() || boottime_ms() > deadline_ms) return alive;
    signal_processes(alive, SIGKILL);
    wait_for_ends(alive, 100);
  }
}

Result<TreeMarks> marks_of_launch(const LaunchDir& directory) {
  TRY(const std::optional<LaunchRecord> launch, directory.read_launch());
  TreeMarks marks;
  if (!launch) return marks;
  marks.key = launch->key;
  const std::string boot = boot_id();
  if (boot.empty()) return Error{Code::ResourceExhausted, "the boot id can't be read", ""};
  const auto add_session = [&](const ProcessIdentity& leader) {
    if (leader.pid > 0 && leader.boot_id == boot) marks.sessions.push_back(leader);
  };
  auto read = read_facts(directory);
  if (!read.ok() && read.error().code == Code::ResourceExhausted) return std::move(read).error();
  const LaunchFacts facts = read.ok() ? std::move(read).value() : LaunchFacts();
  // Once it is dead nobody of ours is in its session, and its number may be a stranger's.
  if (facts.keeper) {
    TRY(const bool alive, check_alive(*facts.keeper));
    if (alive) add_session(*facts.keeper);
  }
  for (const ReplicaLaunch& replica : launch->replicas) marks.cgroups.push_back(replica.cgroups);
  for (const auto& [id, start] : facts.starts) {
    if (facts.exits.contains(id)) continue;  // nothing of it was alive, and the same holds
    add_session(start.process);
    if (start.pipe_inode != 0 && start.process.boot_id == boot) {
      marks.pipe_inodes.push_back(start.pipe_inode);
    }
  }
  return marks;
}

TreeMarks marks_of_replica(const LaunchRecord& launch, const ReplicaLaunch& replica,
                           const ProcessIdentity& process) {
  TreeMarks marks;
  if (!replica.cgroups.empty()) marks.cgroups.push_back(replica.cgroups);
  if (process.pid > 0) marks.sessions.push_back(process);
  if (replica.cgroups.empty()) {
    marks.key = launch.key;
    marks.replica = to_string(replica.id);
  }
  return marks;
}

TreeUsage tree_usage(const ProcessTable& table, const TreeMarks& marks) {
  TreeUsage usage;
  const std::vector<ProcessRow> processes = find_tree(table, marks);
  const double ticks_per_second = static_cast<double>(::sysconf(_SC_CLK_TCK));
  for (const ProcessRow& row : processes) {
    usage.cpu_seconds += static_cast<double>(row.cpu_ticks) / ticks_per_second;
    usage.memory_bytes += row.resident_bytes;
    ++usage.processes;
    const auto io = read_small_file(fmt::format("/proc/{}/io", row.pid));
    unsigned long read_bytes = 0;
    unsigned long written_bytes = 0;
    const size_t at = io ? io->find("read_bytes:") : std::string::npos;
    if (at == std::string::npos) continue;
    std::sscanf(io->c_str() + at, "read_bytes: %lu write_bytes: %lu", &read_bytes, &written_bytes);
    usage.read_bytes += read_bytes;
    usage.written_bytes += written_bytes;
  }
  usage.memory_peak_bytes = usage.memory_bytes;
  for (const auto& directories : marks.cgroups) {
    const CgroupUsage group = cgroup_usage(directories);
    if (marks.cgroups.size() > 1) break;  // a sum of parts known and parts guessed is neither
    if (group.cpu_seconds) usage.cpu_seconds = *group.cpu_seconds;
    if (group.memory_bytes) usage.memory_bytes = *group.memory_bytes;
    if (group.memory_peak_bytes) usage.memory_peak_bytes = *group.memory_peak_bytes;
    if (group.read_bytes) usage.read_bytes = *group.read_bytes;
    if (group.written_bytes) usage.written_bytes = *group.written_bytes;
  }
  return usage;
}

}  // namespace dtrain::runner
