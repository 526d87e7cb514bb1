// The journal of one experiment number: every byte its replicas printed and a copy of every state
// change, in one order, in one append-only file of frames (schema/framing.h). A Watch cursor is an
// offset in it.
//
// Two classes on one file: Journal appends, JournalReader reads at any offset; both on the loop thread
// and neither waits for the disk (Logs syncs on another thread).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "schema/dtrain.pb.h"
#include "schema/ids.h"
#include "schema/result.h"

namespace dtrain::daemon {

inline constexpr uint32_t kJournalLog = 1;     // payload: pb::LogChunk
inline constexpr uint32_t kJournalState = 2;   // payload: pb::StateEvent

// Whose output: a replica's launch.
using LogKey = std::pair<std::string, uint32_t>;   // replica id, attempt

class Journal {
 public:
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // Creates the file when absent. A torn last write is cut off; the offsets of every replica and the
  // number of state events are read back from what is left, which is taken for synced: see to it. It is read
  // from the place on, if that is one of this file: the end of a record.
  static Result<std::unique_ptr<Journal>> open(const std::filesystem::path& path, const pb::JournalPlace& place = {});

  // Takes the bytes of `data` that are not in the journal yet; a repeat adds nothing. Aborted when
  // bytes before it are missing (the sender must resume at next_offset()), ResourceExhausted when too
  // much waits for a disk that takes nothing.
  Status append(const pb::LogData& data);
  void append(const pb::StateEvent& event);

  // Writes what waits with one write(). On error everything still waits, and a later flush goes on.
  Status flush();
  // A sync that began when written() was `end` has succeeded.
  void synced(uint64_t end);
  // A sync has failed. The kernel may have dropped any page since the last good one, and would not
  // say so again: all of that waits to be written once more, to the same place.
  void rewrite();
  // Lets go of the descriptor, once the disk has all of it. flush() takes another when there is something
  // to write.
  void rest();
  bool rests() const { return fd_ < 0; }

  uint64_t next_offset(const LogKey& key) const;
  uint64_t state_events() const { return state_events_; }
  // What open() found behind the last whole record: a torn write, or what follows a damaged one.
  uint64_t cut_bytes() const { return cut_bytes_; }
  uint64_t written() const { return written_; }   // readers may read up to here
  uint64_t synced() const { return synced_; }     // the disk has it up to here, always whole frames
  bool has_waiting() const { return flushed_ < unsynced_.size(); }
  size_t waiting_bytes() const { return unsynced_.size() - flushed_; }
  size_t unsynced_bytes() const { return unsynced_.size(); }
  int descriptor() const { return fd_; }
  // The output offsets that a sync of the file as it is now would make durable.
  const std::map<LogKey, uint64_t>& offsets() const { return next_offset_; }
  // Of them, those that have grown since they were last taken: who syncs takes them, and gives them back
  // when that fails. A set may have very many replicas, of which few print at a time.
  std::map<LogKey, uint64_t> take_grown() { return std::exchange(grown_, {}); }
  void give_back(std::map<LogKey, uint64_t> grown) { grown_.merge(grown); }   // what is newer stays

 private:
  Journal(int fd, std::filesystem::path path) : fd_(fd), path_(std::move(path)) {}

  int fd_;   // -1: it rests
  const std::filesystem::path path_;
  uint64_t cut_bytes_ = 0;
  uint64_t written_ = 0;
  uint64_t synced_ = 0;      // the disk has the file up to here
  std::string unsynced_;     // what follows it: first flushed_ bytes that the file has, then the rest
  size_t flushed_ = 0;
  uint64_t state_events_ = 0;
  std::map<LogKey, uint64_t> next_offset_;
  std::map<LogKey, uint64_t> grown_;
};

class JournalReader {
 public:
  ~JournalReader();
  JournalReader(const JournalReader&) = delete;
  JournalReader& operator=(const JournalReader&) = delete;

  // NotFound when nothing was ever written.
  static Result<std::unique_ptr<JournalReader>> open(const std::filesystem::path& path);

  // Adds items from `cursor` on to `batch`, about `bytes_max` of them; returns the cursor after the
  // last frame looked at. DataLoss: what is at `cursor` is damaged. Looks at kLookBytes or so, whatever it finds
  // there: the batch may stay empty with more to come before `end`. Only items that `pattern` matches are added,
  // output only when `with_logs`.
  static constexpr uint64_t kLookBytes = uint64_t{1} << 20;
  struct Filter {
    IdPattern pattern;
    bool with_logs = true;
    uint32_t attempt = 0;          // 0: all
    uint64_t since_unix_ms = 0;
  };
  Result<uint64_t> read(uint64_t cursor, uint64_t end, size_t bytes_max, const Filter& filter,
                        pb::WatchBatch& batch);

  // The search for the cursor from which exactly the last `lines` lines of matching output before
  // `end` follow, or all if they are fewer, and for how many bytes of the first matching chunk there
  // precede them. `end` when there is none.
  class Tail {
   public:
    Tail(uint64_t end, uint64_t lines) : cursor(end), at_(end), lines_left_(lines) {}
    uint64_t cursor;
    uint64_t skip_bytes = 0;

   private:
    friend class JournalReader;
    uint64_t at_;   // what is before it was not looked at
    uint64_t lines_left_;
    bool last_chunk_ = true;
  };
  // Goes on with it, looking at kLookBytes or so. True: it is found.
  Result<bool> find(Tail& tail, const Filter& filter);

  Result<uint64_t> size() const;

 private:
  explicit JournalReader(int fd) : fd_(fd) {}
  Status fill(uint64_t offset, size_t bytes);
  Result<std::string_view> before(uint64_t end, size_t bytes);

  int fd_;
  std::string buffer_;   // the bytes of the file from buffer_offset_ on
  uint64_t buffer_offset_ = 0;
};

}  // namespace dtrain::daemon
