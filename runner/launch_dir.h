// The directory of one launch, the only thing a keeper and a runner share besides a socket to wake
// each other. Truth is on disk: whoever dies, the next one reads it here.
//
//   launches/<launch>/      e.g. launches/4.2@1, or of builds launches/4.2.build@1
//     record               frames (schema/framing.h, launch_record.proto), and it only grows. The first
//                          ones are the runner's: what to run. Then the keeper's: that it is up, what it
//                          started, how that ended (launch_facts.h)
//     outputs              what to collect at the end: paths of the work tree, each ended by a NUL
//     data/                links to the data sets, unless they are mounted
//     spool.<id>.<seq>     output of one replica: frames, kind kSpoolOutput
//   keepers.log            what keepers have to say about themselves
//
// Few files on purpose: a file system gives out new ones slowly where many were just deleted.
//
// A launch carries its `format` and stays readable one version back. What is written is safe from every crash
// of ours at once; from a power cut once the keeper has synced it, which it does soon after each start
// and each end: what ran is gone with the power in any case.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runner/data_mount.h"
#include "runner/image_root.h"
#include "schema/ids.h"
#include "schema/mounts.h"
#include "schema/result.h"

namespace dtrain::runner {

struct ReplicaLaunch {
  ReplicaId id;
  uint32_t attempt = 0;
  std::vector<std::string> argv;  // argv[0] is looked up in env's PATH
  std::string cwd;
  std::map<std::string, std::string> env;  // complete: nothing is inherited
  // Directories to join, made by the runner (cgroup.h): the first lists members and kills, others
  // only limit and measure. Empty: none.
  std::vector<std::string> cgroups;
  std::vector<int> processors = {};   // on which it runs (numa.h); empty: on any
  std::string image = {};             // directory of the files that it has as / (image_root.h); empty: the host's own
  bool operator==(const ReplicaLaunch&) const = default;
};

// One kind of line to look for in what replicas print.
struct WatchedLine {
  uint32_t rule = 0;     // of the Spec's failure_policy
  std::string pattern;
  bool at_once = false;  // who prints it is ended
  bool operator==(const WatchedLine&) const = default;
};

struct LaunchRecord {
  ExperimentId experiment;
  uint32_t attempt = 0;
  std::string key;                 // 32 hex digits; DTRAIN_KEY in every replica's environment
  std::string ctl;                 // 32 other ones: the name of the keeper's socket
  int64_t lease_ms = 0;            // 0: none
  int64_t grace_ms = 10'000;       // between TERM and KILL when the keeper ends things by itself
  uint64_t spool_limit_bytes = 0;  // per replica; oldest segments are dropped past it
  std::vector<ReplicaLaunch> replicas;
  std::vector<std::string> gpu_locks;  // that the keeper must hold (gpu_lock.h)
  // Of the work directories; the keeper does not look at them.
  std::string work_root;  // <work_root>/4.worker.1@1 is what to unmount and delete at release
  std::string tree;       // what they are views of; empty: of nothing
  std::vector<WatchedLine> watched = {};   // in what replicas print
  DataMount data = {};    // for each replica to enter
  std::vector<HostMount> shown = {};   // of the host, to who has an image
  std::filesystem::path place_of(const ReplicaId& id) const;  // workdir.h
  // Of what a replica writes in its image, beside its view.
  std::filesystem::path image_layer_of(const ReplicaId& id) const;
  bool operator==(const LaunchRecord&) const = default;
};

// Frames of the record, in this order.
inline constexpr uint32_t kRecordBegun = 7;    // before anything is made for the launch: its key
inline constexpr uint32_t kRecordLaunch = 1;   // the launch without its replicas
inline constexpr uint32_t kRecordReplica = 2;  // one of them; the environments of a gang are large
inline constexpr uint32_t kRecordWhole = 3;    // that was all: from here on it is the keeper's. The directory's inode
inline constexpr uint32_t kRecordKeeper = 4;
inline constexpr uint32_t kRecordStart = 5;
inline constexpr uint32_t kRecordPrinted = 8;
inline constexpr uint32_t kRecordExit = 6;

class LaunchDir {
 public:
  explicit LaunchDir(std::filesystem::path path) : path_(std::move(path)) {}
  const std::filesystem::path& path() const { return path_; }

  // The key alone, before anything is made under it.
  Status begin(const std::string& key) const;
  std::optional<std::string> begun_key() const;
  // The record anew. FailedPrecondition: an environment too large for any program.
  Status write_launch(const LaunchRecord&) const;
  // nullopt: not there, or not written to its end. DataLoss: there but not readable as this format or
  // one version back.
  Result<std::optional<LaunchRecord>> read_launch() const;
  // Somebody copied it from where it was written: who keeps it writes there, and not here.
  bool is_copy() const;
  // The names of the record and of the directory are on the disk.
  Status sync_names() const;

  std::filesystem::path record() const { return path_ / "record"; }
  std::filesystem::path outputs() const { return path_ / "outputs"; }
  std::filesystem::path spool(const ReplicaId&, uint64_t sequence) const;

 private:
  std::filesystem::path path_;
};

// ---- ctl: a Unix stream socket of the keeper's in the abstract namespace (no file, and no limit on how
// deep the launch directory lies), "dtrain-keeper-<ctl>". The keeper listens to its own user and to root
// only. One line a message, '\n' at its end.
//
// runner to keeper:
//   start <contact_ms>           run every replica (once; a repeat does nothing); not when the lease is
//                                over, counted from `contact_ms` of CLOCK_BOOTTIME: this line may have
//                                lain somewhere for longer than that
//   stop <replica> <grace_ms>    TERM to its whole tree, KILL after the grace; 0: KILL at once
//   renew <contact_ms>           the lease counts from then; an older one than known changes nothing
//   acked <replica> <offset>     output up to offset is durable at the daemon: segments may go
//   bye                          everything exited and was read: the keeper ends
// keeper to runner:
//   changed                      a spool or the facts grew: look at them
//                                (sent once until the runner answers `seen`, so it can't flood)
//   runner answers: seen
//
// The newest connection is the runner's; an older one is closed. With nobody connected a keeper
// goes on, and one that never heard `start` waits. Once all replicas have exited it ends with `bye`,
// when nobody is connected (everything is on the disk), or when the launch directory is gone; and after
// TERM, INT or HUP (a host that shuts down), or when the directory is removed under them, which end its
// replicas by the ladder first.

// The socket's name, whose first byte says that it is no path. Commands beside replicas have another: exec_wire.h.
inline std::string keeper_socket(const std::string& ctl) { return std::string(1, '\0') + "dtrain-keeper-" + ctl; }

inline constexpr uint32_t kSpoolOutput = 1;  // payload: i64 unix_ms | u64 offset | bytes
// payload: i64 unix_ms | u64 offset | u64 bytes from there on that never reached the disk (it was
// full). Bytes of segments removed by the limit leave a gap between offsets instead; spool.h
// reports both.
inline constexpr uint32_t kSpoolDropped = 2;
inline constexpr uint64_t kSpoolSegmentBytes = uint64_t{8} << 20;

}  // namespace dtrain::runner
