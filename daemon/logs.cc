#include "daemon/logs.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "schema/fd.h"
#include "schema/size_text.h"

namespace dtrain::daemon {

namespace {

// State events are safe in the database: they are synced along with output, or when this much waits.
constexpr size_t kUnsyncedBytesMax = size_t{1} << 20;

}  // namespace

Logs::Logs(boost::asio::io_context& loop, std::filesystem::path folder, Store& store,
           Durable on_durable, LogsDisk disk)
    : loop_(loop),
      folder_(std::move(folder)),
      folder_fd_(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
      store_(store),
      on_durable_(std::move(on_durable)),
      disk_(std::move(disk)),
      retry_(loop) {}

Logs::~Logs() { sync_thread_.join(); }

std::filesystem::path Logs::path(uint32_t number) const {
  return folder_ / fmt::format("{}.journal", number);
}

Result<Logs::Open*> Logs::open(uint32_t number) {
  if (const auto found = open_.find(number); found != open_.end()) return &found->second;
  Open opened;
  TRY(const pb::JournalPlace place, store_.journal_place(number));
  TRY(opened.journal, Journal::open(path(number), place));
  opened.place_bytes = std::min(place.bytes(), opened.journal->written());
  if (opened.journal->cut_bytes() > 0) {
    std::fprintf(stderr, "log of experiment %u: cut off at %llu, where a record is torn or damaged; %llu bytes followed\n",
                 number, static_cast<unsigned long long>(opened.journal->written()),
                 static_cast<unsigned long long>(opened.journal->cut_bytes()));
  }
  // What an earlier daemon wrote may still be on its way to the disk.
  if (opened.journal->written() > 0) {
    opened.named = sync(opened.journal->descriptor(), false);
    if (!opened.named) return errno_error(fmt::format("sync {}", path(number).string()), errno);
  }
  opened.durable = opened.journal->offsets();
  keep_place(number, opened, opened.journal->state_events());   // an earlier daemon may have had no time for it
  // Events are committed first and copied here after: a crash in between is made good now.
  TRY(const auto events, store_.events(number));
  for (size_t i = opened.journal->state_events(); i < events.size(); ++i) {
    opened.journal->append(events[i]);
  }
  ++awake_;
  const bool copied = opened.journal->has_waiting();
  if (copied && is_crowded() && opened.journal->flush().ok()) {   // as is, it could not rest
    if (sync(opened.journal->descriptor(), opened.named)) {
      opened.named = true;
      opened.journal->synced(opened.journal->written());
    } else {
      opened.journal->rewrite();
    }
  }
  Open& kept = open_.emplace(number, std::move(opened)).first->second;
  if (kept.journal->has_waiting()) {
    mark_dirty(number, kept);
  } else {
    rest_if_crowded(kept);
    if (copied) wake(number);
  }
  if (unopened_.erase(number) > 0) {
    failed_.erase(number);
    if (failed_.empty()) set_trouble("");
  }
  return &kept;
}

void Logs::mark_dirty(uint32_t number, Open& open) {
  if (!open.dirty) dirty_.push_back(number);
  open.dirty = true;
  flush_soon();
}

void Logs::flush_soon() {
  if (std::exchange(flush_posted_, true)) return;
  boost::asio::post(loop_, [this] { flush(); });
}

Status Logs::append(uint32_t number, const pb::LogData& data) {
  TRY(Open * open, this->open(number));
  TRY(open->journal->append(data));
  open->sync_wanted = true;
  mark_dirty(number, *open);
  return ok();
}

void Logs::prepare(uint32_t number) {
  // The events are safe in the database; opening the journal later copies them.
  const auto open = this->open(number);
  if (open.ok()) return;
  unopened_.insert(number);
  retry_later(number, open.error().message);
}

void Logs::append(uint32_t number, const pb::StateEvent& event) {
  const auto found = open_.find(number);
  if (found == open_.end()) return;
  found->second.journal->append(event);
  mark_dirty(number, found->second);
}

uint64_t Logs::durable_offset(uint32_t number, const LogKey& key) {
  const auto open = this->open(number);
  if (!open.ok()) return 0;
  const auto found = (*open)->durable.find(key);
  return found == (*open)->durable.end() ? 0 : found->second;
}

Result<uint64_t> Logs::end(uint32_t number) {
  if (const auto found = open_.find(number); found != open_.end()) {
    return found->second.journal->written();
  }
  const auto reader = JournalReader::open(path(number));
  if (reader.ok()) return (*reader)->size();
  if (reader.error().code == Code::NotFound) return uint64_t{0};
  return reader.error();
}

std::optional<uint64_t> Logs::durable_end(uint32_t number) const {
  const auto found = open_.find(number);
  if (found == open_.end()) return std::nullopt;
  return found->second.journal->synced();
}

bool Logs::is_settled(uint32_t number) const {
  const auto found = open_.find(number);
  return found == open_.end() || !found->second.dirty;
}

void Logs::flush() {
  flush_posted_ = false;
  for (const uint32_t number : std::exchange(dirty_, {})) {
    if (unopened_.contains(number)) prepare(number);
    const auto found = open_.find(number);
    if (found != open_.end()) {
      Open& open = found->second;
      const bool rested = open.journal->rests();
      if (rested && open.journal->has_waiting() && room() == 0) {
        crowd_.push_back(number);   // it stays dirty
        continue;
      }
      // Without output it is a few words, and what is left of the disk is for such.
      const size_t waiting_bytes = open.journal->waiting_bytes();
      if (open.sync_wanted && waiting_bytes > disk_.room_bytes(folder_fd_.get())) {
        retry_later(number, fmt::format("no room for {} of output on its disk", size_text(waiting_bytes)));
        continue;
      }
      const auto status = open.journal->flush();
      if (rested && !open.journal->rests()) ++awake_;
      if (!status.ok()) {
        retry_later(number, status.error().message);
        continue;
      }
      open.dirty = false;
      wake(number);
      sync_if_due(number, open);
      rest_if_crowded(open);
    }
    close_if_done(number);
  }
  admit();
}

void Logs::rest_if_crowded(Open& open) {
  if (!is_crowded() || open.journal->rests()) return;
  if (open.dirty || open.syncing || open.journal->unsynced_bytes() > 0) return;
  open.journal->rest();
  --awake_;
  admit();
}

size_t Logs::room() const {
  const size_t most = disk_.open_max + disk_.open_max / 2;
  return most - std::min(most, awake_);
}

// Of those that wait for a descriptor.
void Logs::admit() {
  for (size_t room = this->room(); room > 0 && !crowd_.empty(); --room) {
    dirty_.push_back(crowd_.front());
    crowd_.pop_front();
    flush_soon();
  }
}

void Logs::sync_if_due(uint32_t number, Open& open) {
  const size_t unsynced_bytes = open.journal->unsynced_bytes();
  if (unsynced_bytes == 0) open.sync_wanted = false;   // what came was a repeat
  const bool due = open.sync_wanted || unsynced_bytes > kUnsyncedBytesMax ||
                   (unsynced_bytes > 0 && (closing_.contains(number) || is_crowded()));
  if (!due || open.dirty || open.syncing) return;
  open.syncing = true;
  open.sync_wanted = false;
  boost::asio::post(sync_thread_, [this, number, fd = open.journal->descriptor(), named = open.named,
                                   end = open.journal->written(), state_events = open.journal->state_events(),
                                   offsets = open.journal->take_grown()]() mutable {
    const bool good = sync(fd, named);
    boost::asio::post(loop_, [this, number, end, state_events, offsets = std::move(offsets), good]() mutable {
      synced(number, end, state_events, std::move(offsets), good);
    });
  });
}

// On either thread.
bool Logs::sync(int fd, bool named) const {
  if (disk_.sync(fd) != 0) return false;
  if (named) return true;
  if (folder_fd_) return fsync(folder_fd_.get()) == 0;
  const Fd folder(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return folder && fsync(folder.get()) == 0;
}

void Logs::synced(uint32_t number, uint64_t end, uint64_t state_events, std::map<LogKey, uint64_t> offsets, bool good) {
  const auto found = open_.find(number);
  INVARIANT(found != open_.end(), "a journal stays open while it is synced");
  Open& open = found->second;
  open.syncing = false;
  if (!good) {
    open.journal->rewrite();
    open.journal->give_back(std::move(offsets));
    open.sync_wanted = true;
    retry_later(number, "sync failed, writing it again");
    return;
  }
  if (failed_.empty()) set_trouble("");
  open.journal->synced(end);
  open.named = true;
  for (const auto& [key, offset] : offsets) {
    uint64_t& durable = open.durable[key];
    if (offset <= durable) continue;
    durable = offset;
    on_durable_(key, offset);
  }
  keep_place(number, open, state_events);
  sync_if_due(number, open);
  rest_if_crowded(open);
  close_if_done(number);
}

void Logs::keep_place(uint32_t number, Open& open, uint64_t state_events) {
  if (open.journal->synced() < open.place_bytes + disk_.place_bytes) return;
  pb::JournalPlace place;
  place.set_bytes(open.journal->synced());
  place.set_state_events(state_events);
  for (const auto& [key, offset] : open.durable) {
    pb::OutputEnd& end = *place.add_ends();
    end.set_replica(key.first);
    end.set_attempt(key.second);
    end.set_offset(offset);
  }
  open.place_bytes = place.bytes();
  // Without it more is read again, that is all.
  const auto kept = store_.put_journal_place(number, place);
  if (!kept.ok()) std::fprintf(stderr, "log of experiment %u: %s\n", number, kept.error().message.c_str());
}

void Logs::close(uint32_t number, std::function<void()> closed) {
  closing_[number] = std::move(closed);
  close_if_done(number);
}

void Logs::close_if_done(uint32_t number) {
  const auto closing = closing_.find(number);
  if (closing == closing_.end()) return;
  const auto opened = this->open(number);
  if (!opened.ok()) {
    retry_later(number, opened.error().message);
    return;
  }
  Open& open = **opened;
  sync_if_due(number, open);
  if (open.dirty || open.syncing || open.journal->unsynced_bytes() > 0) return;
  if (!open.journal->rests()) --awake_;
  open_.erase(number);
  admit();
  const auto closed = std::move(closing->second);
  closing_.erase(closing);
  closed();
}

// The disk refused something of it.
void Logs::retry_later(uint32_t number, std::string why) {
  why = fmt::format("log of experiment {}: {}", number, why);
  std::fprintf(stderr, "%s\n", why.c_str());
  if (trouble_.empty()) set_trouble(std::move(why));
  if (const auto found = open_.find(number); found != open_.end()) found->second.dirty = true;
  std::erase(dirty_, number);
  const bool armed = !failed_.empty();
  failed_.insert(number);
  if (armed) return;
  retry_.expires_after(disk_.retry_after);
  retry_.async_wait([this](boost::system::error_code error) {
    if (error) return;
    dirty_.insert(dirty_.end(), failed_.begin(), failed_.end());
    failed_.clear();
    flush();
    const auto waits = [](const auto& entry) {
      return entry.second.syncing || entry.second.sync_wanted;
    };
    const bool passed = failed_.empty() && std::none_of(open_.begin(), open_.end(), waits);
    if (passed) set_trouble("");
  });
}

void Logs::set_trouble(std::string why) {
  if (why == trouble_) return;
  trouble_ = std::move(why);
  wake_all();
}

void Logs::unlisten(uint32_t number, JournalListener* listener) {
  const auto found = listeners_.find(number);
  if (found == listeners_.end()) return;
  found->second.erase(listener);
  if (found->second.empty()) listeners_.erase(found);
}

void Logs::wake(uint32_t number) {
  const auto found = listeners_.find(number);
  if (found == listeners_.end()) return;
  for (JournalListener* listener : std::vector(found->second.begin(), found->second.end())) {
    listener->journal_grew();
  }
}

void Logs::wake_all() {
  std::vector<uint32_t> numbers;
  for (const auto& entry : listeners_) numbers.push_back(entry.first);
  for (const uint32_t number : numbers) wake(number);
}

}  // namespace dtrain::daemon
