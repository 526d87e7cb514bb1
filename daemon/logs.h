// The journals of all experiments: who appends, who waits for more, and what is durable.
//
// Owner: daemon main. Thread: loop; fdatasync runs on one other thread and comes back as a posted
// function. Promises: on_durable names an offset only after the disk has it; what a failed sync may
// have lost is written again. Never blocks on the disk but for the write() into the page cache, and
// for one sync when the journal of an earlier daemon is opened.
#pragma once

#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/journal.h"
#include "daemon/store.h"
#include "schema/disk_room.h"
#include "schema/fd.h"

namespace dtrain::daemon {

// Someone who follows an experiment; woken on the loop when its journal grew, or when trouble with
// the disk came or went. Owner: the stream.
class JournalListener {
 public:
  virtual ~JournalListener() = default;
  virtual void journal_grew() = 0;
};

// How the disk is asked; tests have another answer. After a failure it is left alone for a while.
struct LogsDisk {
  std::function<int(int fd)> sync = fdatasync;
  std::chrono::milliseconds retry_after{1000};
  std::function<uint64_t(int fd)> room_bytes = log_room_bytes;   // for output
  // So many journals keep their descriptor; of more, half as many again while something is written to
  // them. Each experiment that waits in the queue has a journal, too.
  size_t open_max = SIZE_MAX / 2;
  // After so much more output the store is told of the place: a later daemon reads from there on.
  uint64_t place_bytes = uint64_t{64} << 20;
};

class Logs {
 public:
  using Durable = std::function<void(const LogKey& key, uint64_t offset)>;

  Logs(boost::asio::io_context& loop, std::filesystem::path folder, Store& store, Durable on_durable,
       LogsDisk disk = {});
  ~Logs();
  Logs(const Logs&) = delete;
  Logs& operator=(const Logs&) = delete;

  std::filesystem::path path(uint32_t number) const;

  // See Journal::append. Written and synced at the end of the turn.
  Status append(uint32_t number, const pb::LogData& data);
  // Opens the journal and repeats in it what a crash kept out: call before committing an event.
  void prepare(uint32_t number);
  // Call after the event is committed.
  void append(uint32_t number, const pb::StateEvent& event);
  // Where a replica's output is durable up to.
  uint64_t durable_offset(uint32_t number, const LogKey& key);
  // Readers may read up to here; for a closed journal its size, 0 where there is none.
  Result<uint64_t> end(uint32_t number);
  // The disk has the journal up to here, for ever; nothing when it is not open.
  std::optional<uint64_t> durable_end(uint32_t number) const;
  // Nothing appended still waits to be written.
  bool is_settled(uint32_t number) const;
  // The experiment is over: once its whole journal is synced it is closed, and `closed` is called.
  void close(uint32_t number, std::function<void()> closed);

  void listen(uint32_t number, JournalListener* listener) { listeners_[number].insert(listener); }
  void unlisten(uint32_t number, JournalListener* listener);
  void wake(uint32_t number);
  void wake_all();

  // Why some journal can't be written at present; empty: all can.
  const std::string& trouble() const { return trouble_; }

 private:
  struct Open {
    std::unique_ptr<Journal> journal;
    std::map<LogKey, uint64_t> durable;
    bool dirty = false;         // something waits to be written
    bool sync_wanted = false;   // written output that no sync has covered yet
    bool syncing = false;
    bool named = false;         // its name is durable too
    uint64_t place_bytes = 0;   // the store's place
  };

  Result<Open*> open(uint32_t number);
  void mark_dirty(uint32_t number, Open& open);
  void flush_soon();
  void flush();
  bool is_crowded() const { return awake_ > disk_.open_max; }
  size_t room() const;
  void admit();
  void rest_if_crowded(Open& open);
  void sync_if_due(uint32_t number, Open& open);
  bool sync(int fd, bool named) const;
  // A sync of the journal as it was at `end`, with so many state events.
  void synced(uint32_t number, uint64_t end, uint64_t state_events, std::map<LogKey, uint64_t> offsets, bool good);
  void keep_place(uint32_t number, Open& open, uint64_t state_events);
  void close_if_done(uint32_t number);
  void retry_later(uint32_t number, std::string why);
  void set_trouble(std::string why);

  boost::asio::io_context& loop_;
  const std::filesystem::path folder_;
  const Fd folder_fd_;   // a journal without a descriptor to spare is synced all the same
  Store& store_;
  Durable on_durable_;
  const LogsDisk disk_;
  std::unordered_map<uint32_t, Open> open_;
  size_t awake_ = 0;   // of them, those with a descriptor
  std::unordered_map<uint32_t, std::function<void()>> closing_;
  std::unordered_map<uint32_t, std::set<JournalListener*>> listeners_;
  std::vector<uint32_t> dirty_;
  std::deque<uint32_t> crowd_;    // dirty too, once others rest
  std::set<uint32_t> failed_;     // the disk refused them; dirty again when retry_ fires
  std::set<uint32_t> unopened_;   // of them, those whose file could not be opened
  std::string trouble_;
  bool flush_posted_ = false;
  boost::asio::steady_timer retry_;
  boost::asio::thread_pool sync_thread_{1};
};

}  // namespace dtrain::daemon
