// The directory of one launch, the only thing a keeper and a runner share besides a socket to wake
// each other. Truth is on disk: whoever dies, the next one reads it here.
//
//   launches/<experiment>@<attempt>/        e.g. launches/4.2@1
//     launch.json          written by the runner before the keeper starts: what to run
//     keeper.json          written by the keeper once it is ready (its replicas wait for `start`)
//     keeper.log           what the keeper itself has to say
//     replica.<id>.json    written by the keeper after each exec: pid and its start time
//     spool.<id>.<seq>     output of one replica: frames (schema/framing.h), kind kSpoolOutput
//     exit.<id>.json       written by the keeper when the replica's whole tree is gone and its
//                          output is in the spool; fsync + rename
//     ctl                  Unix stream socket of the keeper, mode 0600
//
// Formats carry `format` and stay readable one version back.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "schema/ids.h"
#include "schema/result.h"

namespace dtrain::runner {

inline constexpr int kLaunchFormat = 1;

// A process that can't be mistaken for a later one with the same pid.
struct ProcessIdentity {
  pid_t pid = 0;
  uint64_t start_ticks = 0;  // field 22 of /proc/<pid>/stat
  std::string boot_id;
};
ProcessIdentity identify(pid_t pid);             // start_ticks 0 when it is gone
bool is_alive(const ProcessIdentity& identity);  // same boot, same start time, not a zombie

struct ReplicaLaunch {
  ReplicaId id;
  uint32_t attempt = 0;
  std::vector<std::string> argv;  // argv[0] is looked up in env's PATH
  std::string cwd;
  std::map<std::string, std::string> env;  // complete: nothing is inherited
  // Directories to join, made by the runner (cgroup.h): the first lists members and kills, others
  // only limit and measure. Empty: none.
  std::vector<std::string> cgroups;
};

struct LaunchFile {
  ExperimentId experiment;
  uint32_t attempt = 0;
  std::string key;                 // 32 hex digits; DTRAIN_KEY in every replica's environment
  int64_t lease_ms = 0;            // 0: none
  int64_t grace_ms = 10'000;       // between TERM and KILL when the keeper ends things by itself
  uint64_t spool_limit_bytes = 0;  // per replica; oldest segments are dropped past it
  std::vector<ReplicaLaunch> replicas;
  // For the runner that adopts this launch; the keeper does not look at them.
  std::string work_root;  // what to unmount and delete at release
};

struct KeeperFile {
  ProcessIdentity keeper;
};

struct ReplicaFile {
  ProcessIdentity process;
  int64_t started_unix_ms = 0;
  uint64_t pipe_inode = 0;  // of its output: who holds it belongs to it
  std::string error;        // exec failed: why; then an exit file follows with code 126 or 127
};

struct ExitFile {
  int code = 0;  // 128+signal when a signal ended it
  int signal = 0;
  bool memory_kill = false;
  std::string cause;  // "exit code 3", "killed by SIGSEGV (11)", "out of memory: ..."
  int64_t ended_unix_ms = 0;
  double cpu_seconds = 0;  // whole tree
  uint64_t memory_peak_bytes = 0;  // of its largest process; of all when it ran out of memory
  uint64_t read_bytes = 0;
  uint64_t written_bytes = 0;
  uint64_t log_bytes = 0;  // everything it wrote to stdout and stderr
};

class LaunchDir {
 public:
  explicit LaunchDir(std::filesystem::path path) : path_(std::move(path)) {}
  const std::filesystem::path& path() const { return path_; }

  static std::string name_of(const ExperimentId& experiment, uint32_t attempt);  // "4.2@1"

  // Written under a temporary name and renamed: nobody sees half of one. After a power cut launch.json
  // is there, an exit file is whole or missing (then its replica is lost with the machine), and the
  // other two are about processes that are gone.
  Status write_launch(const LaunchFile&) const;
  Status write_keeper(const KeeperFile&) const;
  Status write_replica(const ReplicaId&, const ReplicaFile&) const;
  Status write_exit(const ReplicaId&, const ExitFile&) const;

  // nullopt: not there (yet). DataLoss: there but not readable as this format or one version back.
  Result<std::optional<LaunchFile>> read_launch() const;
  Result<std::optional<KeeperFile>> read_keeper() const;
  Result<std::optional<ReplicaFile>> read_replica(const ReplicaId&) const;
  Result<std::optional<ExitFile>> read_exit(const ReplicaId&) const;

  std::filesystem::path spool(const ReplicaId&, uint64_t sequence) const;
  std::filesystem::path ctl() const { return path_ / "ctl"; }

 private:
  std::filesystem::path path_;
};

// ---- ctl: one line a message, '\n' at its end.
//
// runner to keeper:
//   start                        run every replica (once; a repeat does nothing)
//   stop <replica> <grace_ms>    TERM to its whole tree, KILL after the grace; 0: KILL at once
//   renew <ms>                   the lease counts from now minus `ms`
//   acked <replica> <offset>     output up to offset is durable at the daemon: segments may go
//   bye                          everything exited and was read: the keeper ends
// keeper to runner:
//   changed                      a spool grew or a file appeared: look at the directory
//                                (sent once until the runner answers `seen`, so it can't flood)
//   runner answers: seen
//
// The newest connection is the runner's; an older one is closed. With nobody connected a keeper
// goes on, and one that never heard `start` waits. It ends by itself only after `bye`, when all
// replicas exited and the launch directory is gone, or after TERM, INT or HUP (a host that shuts
// down), which end its replicas by the ladder first.

inline constexpr uint32_t kSpoolOutput = 1;  // payload: i64 unix_ms | u64 offset | bytes
// payload: i64 unix_ms | u64 offset | u64 bytes from there on that never reached the disk (it was
// full). Bytes of segments removed by the limit leave a gap between offsets instead; spool.h
// reports both.
inline constexpr uint32_t kSpoolDropped = 2;
inline constexpr uint64_t kSpoolSegmentBytes = uint64_t{8} << 20;

}  // namespace dtrain::runner
