// One process of a gang on this host as the runner sees it: what the keeper wrote down, and how far
// its output has travelled.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "runner/launch_dir.h"
#include "runner/launch_facts.h"
#include "runner/outbox.h"
#include "runner/spool.h"
#include "schema/ids.h"

namespace dtrain::runner {

// Output of all replicas of this host that was sent and is not yet durable at the daemon.
struct LogWindow {
  uint64_t limit_bytes = uint64_t{16} << 20;
  uint64_t unacked_bytes = 0;
  bool has_room() const { return unacked_bytes < limit_bytes; }
};

inline constexpr size_t kLogDataMaxBytes = size_t{256} << 10;
// Output read within this time travels as one message under the time of its first byte.
inline constexpr int64_t kLogMergeMs = 10;

// A Replica is one process of a launch, from Prepared to Forget.
// Owner: HeldLaunch. Thread: loop. Outlives its process, its keeper and any number of streams.
// Promises: what it reports never contradicts what it reported before; Released only after Exited.
// Never: talks to the keeper, retries, or decides what an exit means.
class Replica {
 public:
  Replica(SpoolListing& spools, const ReplicaId& id, uint32_t attempt, LogWindow& window);
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  const ReplicaId& id() const { return id_; }
  uint32_t attempt() const { return attempt_; }
  bool started() const { return start_.has_value(); }
  bool exited() const { return exit_.has_value(); }
  bool released() const { return released_; }
  const std::optional<ReplicaStart>& start() const { return start_; }
  // Exited, and every byte it wrote is durable at the daemon.
  bool drained() const;

  // What the facts say; reported if it is new.
  void on_start(const ReplicaStart& start, Outbox& outbox);
  void on_exit(const ReplicaExit& exit, Outbox& outbox);
  // After Welcome: every fact again.
  void repeat(Outbox& outbox) const;
  void release(std::string left_behind, Outbox& outbox);

  // The daemon has everything below `offset`: send from there. It may be less than it acknowledged: its copy
  // was damaged or deleted since. Without it: from what was acknowledged on.
  void resume(std::optional<uint64_t> offset);
  // No stream: what was sent counts as not sent.
  void pause();
  // Sends at most one message of output. True: there may be more.
  bool pump(Outbox& outbox);
  // After pump() had no more: its spool can't be read now, and nobody will say when it can.
  bool is_hindered() const;
  // True when this acknowledged something new.
  bool acknowledge(uint64_t offset);
  uint64_t acked_offset() const { return acked_offset_; }

 private:
  bool fill(pb::LogData& log);
  bool lacks_end() const;
  void report_started(Outbox& outbox) const;
  void report_exited(Outbox& outbox) const;
  void report_released(Outbox& outbox) const;

  SpoolListing& spools_;
  ReplicaId id_;
  uint32_t attempt_;
  LogWindow& window_;
  std::optional<ReplicaStart> start_;
  std::optional<ReplicaExit> exit_;
  bool released_ = false;
  std::string left_behind_;

  std::unique_ptr<SpoolReader> reader_;  // while a stream is open
  std::optional<SpoolChunk> rest_;       // of a chunk that did not fit; its bytes are the reader's
  uint64_t acked_offset_ = 0;
  uint64_t sent_offset_ = 0;  // >= acked_offset_; the difference is in the window
};

}  // namespace dtrain::runner
