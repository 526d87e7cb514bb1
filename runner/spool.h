// The output of one replica on its way to the daemon: an append-only row of segment files of
// frames. The keeper writes (SpoolWriter), the runner reads (SpoolReader); both look only at the
// disk, so either may die and go on where it was.
//
// Offsets count every byte the replica ever wrote, lost ones included. Two things lose bytes, both
// declared: a disk as full as output may make it (a kSpoolDropped frame says which), and the limit,
// which unlinks the oldest segment (a gap between offsets). The reader reports both the same way.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "schema/fd.h"
#include "runner/launch_dir.h"
#include "runner/spool_listing.h"
#include "schema/framing.h"
#include "schema/result.h"

namespace dtrain::runner {

// Owner: the keeper, one a replica. Thread: its loop. Promises: append() never fails and never
// blocks on anything but the disk; what it can't store it counts.
class SpoolWriter {
 public:
  // limit_bytes 0: none. A limit below two segments counts as two.
  SpoolWriter(const LaunchDir& directory, ReplicaId replica, uint64_t limit_bytes);
  SpoolWriter(const SpoolWriter&) = delete;
  SpoolWriter& operator=(const SpoolWriter&) = delete;

  // At most kFramePayloadMaxBytes - 16 bytes. `unix_ms` is when they were read.
  void append(std::string_view bytes, int64_t unix_ms);
  // Everything below `offset` is durable elsewhere: whole segments below it are unlinked.
  void acknowledge(uint64_t offset);
  // Nothing more comes: tries once more to write down what was lost. If that fails too, the reader's
  // last offset stays below the exit's log_bytes, and Replica declares the loss.
  void finish(int64_t unix_ms);

  uint64_t end_offset() const { return end_offset_; }
  uint64_t lost_bytes() const { return pending_loss_bytes_ + lost_bytes_; }
  uint64_t stored_bytes() const { return stored_bytes_; }  // on disk now, frames and all

 private:
  struct Segment {
    uint64_t sequence = 0;
    uint64_t end_offset = 0;  // of the stream, after its last frame
    uint64_t size_bytes = 0;
  };
  bool open_segment();
  bool has_room(size_t more_bytes);
  bool write_frame(uint32_t kind, std::string_view head, std::string_view body);
  bool write_loss(int64_t unix_ms);
  void drop_past_limit();

  LaunchDir directory_;
  ReplicaId replica_;
  uint64_t limit_bytes_;
  Fd file_;
  std::deque<Segment> segments_;
  uint64_t next_sequence_ = 1;
  uint64_t end_offset_ = 0;
  uint64_t acknowledged_ = 0;
  uint64_t stored_bytes_ = 0;
  uint64_t pending_loss_bytes_ = 0;  // lost just before end_offset_, not written down yet
  uint64_t lost_bytes_ = 0;
  std::string buffer_;
};

// A piece of a replica's stream. Either bytes or a hole.
struct SpoolChunk {
  uint64_t offset = 0;
  int64_t unix_ms = 0;
  std::string_view bytes;      // valid until the next call of next()
  uint64_t dropped_bytes = 0;  // not 0: these bytes from `offset` on are lost
  uint64_t end_offset() const { return offset + bytes.size() + dropped_bytes; }
};

// Owner: the runner, one a replica. Thread: the caller's. Never writes or unlinks.
class SpoolReader {
 public:
  // Starts at `offset` of the stream: bytes below it were acknowledged.
  // `spools` is told by its owner when to look anew.
  SpoolReader(SpoolListing& spools, ReplicaId replica, uint64_t offset);
  // Looks anew each time.
  SpoolReader(const LaunchDir& directory, ReplicaId replica, uint64_t offset);
  SpoolReader(const SpoolReader&) = delete;
  SpoolReader& operator=(const SpoolReader&) = delete;

  // The next piece, in order, without holes that are not declared. nullopt: nothing more now; ask
  // again after `changed`, or know it is the end when the replica has exited and wrote so many
  // bytes. A damaged segment is left at the damage; the rest of it shows as dropped once a later
  // one is there. DataLoss: it was the last one.
  Result<std::optional<SpoolChunk>> next();

  uint64_t offset() const { return offset_; }  // of the next piece
  // After next() had nothing: no other segment holds any more. False too when nobody can say now.
  bool is_last() const;
  // next() had nothing for want of descriptors, say: there may be more all the same.
  bool is_hindered() const { return hindered_; }

 private:
  bool open_segment(uint64_t sequence);
  uint64_t later_sequence();
  std::optional<std::set<uint64_t>> sequences() const;  // of the segments that are there
  Error skip_damage();
  FrameStatus peek(Frame& frame);
  bool read_ahead();
  std::string_view unread() const;
  std::optional<SpoolChunk> take(const Frame& frame);

  std::unique_ptr<SpoolListing> own_spools_;
  SpoolListing* spools_;
  ReplicaId replica_;
  uint64_t offset_;
  Fd file_;
  uint64_t sequence_ = 0;       // of file_; 0: none yet
  uint64_t file_position_ = 0;  // of the next frame
  // Read ahead: buffer_[taken_, filled_) are the file's bytes from file_position_ on.
  std::string buffer_;
  size_t taken_ = 0;
  size_t filled_ = 0;
  bool hindered_ = false;
  size_t frame_bytes_ = 0;  // of the frame whose bytes were handed out; taken by the next call
};

}  // namespace dtrain::runner
