// Control groups as this host allows them: to know and kill what a replica started, to weigh and
// cap its CPU and memory, and to measure it. Everything works, less exactly, without them.
//
//   v2    members and kill by the v2 hierarchy, even where it has no controllers; weights and limits by
//         its controllers, or limits by v1's cpu and memory hierarchies mounted beside it
//   v1    members and kill by one v1 hierarchy, limits by v1
//   none  nothing is writable: sessions, keys and parent links are all there is (process_tree.h)
//
// The runner creates groups, the keeper joins, kills and removes them. Thread: any; blocking file
// access to a kernel file system.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runner/launch_dir.h"
#include "schema/result.h"

namespace dtrain::runner {

struct CgroupSupport {
  std::string kind = "none";       // "v2", "v1", "none": what `dtrain hosts` shows
  std::filesystem::path tracking;  // where groups that list members are made; empty: none
  std::filesystem::path cpu;       // where groups that weigh CPU are made; may equal tracking
  std::filesystem::path memory;    // same for memory
  std::string note;                // why it is not better: "cannot write /sys/fs/cgroup/..."
};

// What it can't cap, as Inventory has it: "cpus", "mem".
std::vector<std::string> uncapped(const CgroupSupport& support);

enum class CgroupChoice { Best, V1, None };

// Looks what is writable below this process's own groups by making and removing a directory. With
// v2 controllers it first moves this process to a leaf, as the kernel demands; so: once, early, by
// the runner.
CgroupSupport claim_cgroups(CgroupChoice choice = CgroupChoice::Best);

struct CgroupLimits {
  double cpus = 1;  // a weight; a cap when cpus_hard
  bool cpus_hard = false;
  uint64_t memory_bytes = 0;  // protected from reclaim where possible; a cap when memory_hard
  bool memory_hard = false;
};

// Makes one group a replica below one a launch, named by the launch's key, and fills in each
// replica's `cgroups`. A replica missing in `limits` gets none. A second hierarchy is used for a cap
// only: to join it a process waits some ten milliseconds for all CPUs, more than a weight is worth.
// FailedPrecondition: a cap that this host can't keep. On error nothing is left behind.
Status make_launch_cgroups(const CgroupSupport& support,
                           const std::map<ReplicaId, CgroupLimits>& limits, LaunchRecord& launch);

// What a launch with that key may have, of which no more than the key was written down.
void remove_begun_cgroups(const CgroupSupport& support, const std::string& key);

// Removes what make_launch_cgroups made (and groups the replicas made inside). Not an error when it
// is gone already. FailedPrecondition: a process is still in there.
Status remove_launch_cgroups(const LaunchRecord& launch);
Status remove_cgroups(const std::vector<std::string>& directories);

// ---- of one replica: `directories` is ReplicaLaunch::cgroups, the first one lists members.

std::vector<pid_t> cgroup_members(const std::vector<std::string>& directories);
// SIGKILL to all members at once, forks in flight included, where the kernel can (cgroup.kill).
// False: it can't; kill them one by one.
bool cgroup_kill(const std::vector<std::string>& directories);

// What the groups know; a field without a controller is nullopt.
struct CgroupUsage {
  std::optional<double> cpu_seconds;
  std::optional<uint64_t> memory_bytes;
  std::optional<uint64_t> memory_peak_bytes;
  std::optional<uint64_t> read_bytes;
  std::optional<uint64_t> written_bytes;
  uint64_t memory_kills = 0;  // how often the kernel killed inside for want of memory
  std::optional<uint64_t> memory_limit_bytes;
};
CgroupUsage cgroup_usage(const std::vector<std::string>& directories);

// How often the kernel has killed for want of memory since it came up, in whatever group.
uint64_t memory_kills_since_boot();

}  // namespace dtrain::runner
