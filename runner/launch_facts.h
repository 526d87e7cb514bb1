// What became of a launch, in the order it happened: the frames of its record after those of the launch.
//
//   kRecordKeeper  the keeper is up and listens on `ctl`: who it is
//   kRecordStart   a replica was started, or could not be
//   kRecordPrinted a line came that was watched for: should the keeper die, it is known all the same
//   kRecordExit    a replica has ended: its whole tree is gone and its output is in the spool
//
// The keeper writes; once it is dead, the runner does. Anybody may read meanwhile.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runner/launch_dir.h"
#include "runner/process_identity.h"
#include "schema/fd.h"
#include "schema/result.h"

namespace dtrain::runner {

struct ReplicaStart {
  ProcessIdentity process;
  int64_t unix_ms = 0;
  uint64_t pipe_inode = 0;  // of its output: who holds it belongs to it
  std::string error;        // exec failed: why; its end follows, with code 126 or 127
  bool operator==(const ReplicaStart&) const = default;
};

struct PrintedLine {
  uint32_t rule = 0;   // of WatchedLine
  std::string line;    // its first 200 bytes
  bool operator==(const PrintedLine&) const = default;
};

struct ReplicaExit {
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
  std::vector<PrintedLine> printed;  // the first line of each kind that was watched for
  bool ended_for_line = false;         // for one of them, whatever its code is
  bool operator==(const ReplicaExit&) const = default;
};

struct LaunchFacts {
  std::optional<ProcessIdentity> keeper;
  std::map<ReplicaId, ReplicaStart> starts;
  std::map<ReplicaId, std::vector<PrintedLine>> printed;
  std::map<ReplicaId, ReplicaExit> exits;
  bool operator==(const LaunchFacts&) const = default;
};

// Everything so far; nothing when there is no record. DataLoss: a record that is whole and makes
// no sense to this version. A torn end is not seen.
Result<LaunchFacts> read_facts(const LaunchDir& directory);

// Owner: whoever follows a launch. Thread: the caller's.
class FactsReader {
 public:
  explicit FactsReader(LaunchDir directory) : directory_(std::move(directory)) {}
  // What came since the last call.
  Result<LaunchFacts> next();

 private:
  LaunchDir directory_;
  uint64_t offset_ = 0;
};

// Owner: the keeper, or the runner once the keeper is dead. On error the file is as it was.
class FactsWriter {
 public:
  FactsWriter() = default;
  // Of a launch that was written. Cuts off the torn end that a killed writer left.
  static Result<FactsWriter> open(const LaunchDir& directory);

  Status add(const ProcessIdentity& keeper);
  Status add(const ReplicaId& id, const ReplicaStart& start);
  Status add(const ReplicaId& id, const PrintedLine& printed);
  Status add(const ReplicaId& id, const ReplicaExit& exit);
  // The disk has all of it. After an error try again: what the disk may have dropped is written anew.
  Status sync();

  // How the disk is asked; tests have another answer.
  int (*fdatasync)(int fd) = ::fdatasync;

 private:
  Status append(uint32_t kind, const std::string& record);
  Status write_unsynced();

  std::string path_;
  Fd file_;
  uint64_t end_ = 0;
  std::string unsynced_;  // the last bytes before end_: those that no sync has covered yet
  bool sync_failed_ = false;
};

}  // namespace dtrain::runner
