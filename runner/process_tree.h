// Finding and ending every process of a replica or a launch, whatever it did to hide: forked,
// forked twice, took a session of its own, cleared its environment, closed its output.
//
// A process belongs to a tree by any mark: its cgroup, its session, an ancestor, the launch's key
// in the environment it was started with, or the replica's output pipe held open. While the keeper
// lives it is the reaper of all orphans, so that everything is below it; when it is dead, only the
// other marks are left, which is why there are several.
//
// Thread: any; no state is kept. Never signals by a bare pid that could have been reused: each
// process is held by a pidfd and compared again by its start time before it is signalled.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "runner/launch_dir.h"
#include "runner/process_identity.h"

namespace dtrain::runner {

struct ProcessRow {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t session = 0;
  char state = '?';  // of its first thread, as in /proc/<pid>/stat
  int threads = 0;
  uint64_t start_ticks = 0;
  uint64_t cpu_ticks = 0;  // user and system, its own and of children it waited for
  uint64_t resident_bytes = 0;
};

// Every process of the machine at one moment, by pid. Zombies included: they have children's links.
struct ProcessTable {
  std::unordered_map<pid_t, ProcessRow> rows;
  bool whole = true;  // false: for want of descriptors some may be missing
  static ProcessTable read();
  // Only what is below the calling process, which must be the reaper of its orphans and have one
  // thread: as good as read(), and a thousand keepers don't read a thousand rows each.
  static ProcessTable read_below_self();
};

// How the processes of a tree are told from all others. Empty or zero marks match nothing.
struct TreeMarks {
  std::vector<std::vector<std::string>> cgroups = {};  // ReplicaLaunch::cgroups of each replica
  std::vector<ProcessIdentity> sessions = {};          // by their leaders, dead or alive
  std::string key = {};                                // DTRAIN_KEY
  std::string replica = {};                            // with key: also DTRAIN_REPLICA; empty: any
  std::vector<uint64_t> pipe_inodes = {};              // someone holds one of these pipes
};

// Live (not zombie) processes that carry one of the marks, or descend from one that does. Never the
// calling process.
std::vector<ProcessRow> find_tree(const ProcessTable& table, const TreeMarks& marks);

// What the keeper does while it lives and everything is below it: the live processes below
// `ancestor`, sorted by which of `replicas` each belongs to. One more list at the end: those that
// carry no mark of any (an orphan that took a new session, cleared its environment and closed its
// output).
std::vector<std::vector<ProcessRow>> split_tree(const ProcessTable& table, pid_t ancestor,
                                                const std::vector<TreeMarks>& replicas);

// Sends `signal` to each row that still is the process that was seen. How many got it.
int signal_processes(const std::vector<ProcessRow>& processes, int signal);

// SIGKILL until a look finds none, or `give_up_ms` passed (a process in an uninterruptible wait).
// Blocks. The processes still there; ResourceExhausted at once when there is no descriptor to look.
Result<std::vector<ProcessRow>> kill_tree(const TreeMarks& marks, int64_t give_up_ms);

// The marks of everything a launch started and has not written off as ended, from its directory alone:
// what the runner kills when the keeper is dead (or its own process too).
Result<TreeMarks> marks_of_launch(const LaunchDir& launch);

// The marks of one replica, for measuring it; DTRAIN_KEY only where there is no cgroup.
TreeMarks marks_of_replica(const LaunchRecord& launch, const ReplicaLaunch& replica,
                           const ProcessIdentity& process);

// Sums of /proc over processes.
struct TreeUsage {
  double cpu_seconds = 0;     // a process that has ended and was waited for counts too
  uint64_t memory_bytes = 0;  // resident; shared pages count once a process
  uint64_t memory_peak_bytes = 0;
  uint64_t read_bytes = 0;  // from and to storage
  uint64_t written_bytes = 0;
  int processes = 0;
};
// From the cgroups where they say it, else from /proc. A sample of a live tree, by a table that serves for others too.
TreeUsage tree_usage(const ProcessTable& table, const TreeMarks& marks);

}  // namespace dtrain::runner
