#include "daemon/logs.h"

#include <fcntl.h>
#include <unistd.h>

#include <boost/asio/post.hpp>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <utility>

namespace dtrain::daemon {

namespace {

constexpr auto kDiskRetry = std::chrono::seconds(1);

}  // namespace

Logs::Logs(boost::asio::io_context& loop, std::filesystem::path folder, Store& store,
           Durable on_durable)
    : loop_(loop),
      folder_(std::move(folder)),
      store_(store),
      on_durable_(std::move(on_durable)),
      retry_(loop) {}

Logs::~Logs() { sync_thread_.join(); }

std::filesystem::path Logs::path(uint32_t number) const {
  return folder_ / fmt::format("{}.journal", number);
}

Result<Logs::Open*> Logs::open(uint32_t number) {
  if (const auto found = open_.find(number); found != open_.end()) return &found->second;
  Open opened;
  TRY(opened.journal, Journal::open(path(number)));
  // What an earlier daemon wrote may still be on its way to the disk.
  if (opened.journal->written() > 0 && fdatasync(opened.journal->descriptor()) != 0) {
    return errno_error(fmt::format("sync {}", path(number).string()), errno);
  }
  opened.durable = opened.journal->offsets();
  // Events are committed first and copied here after: a crash in between is made good now.
  TRY(const auto events, store_.events(number));
  for (size_t i = opened.journal->state_events(); i < events.size(); ++i) {
    opened.journal->append(events[i]);
  }
  Open& kept = open_.emplace(number, std::move(opened)).first->second;
  if (kept.journal->has_waiting()) mark_dirty(number, kept);
  return &kept;
}

void Logs::mark_dirty(uint32_t number, Open& open) {
  if (!open.dirty) dirty_.push_back(number);
  open.dirty = true;
  if (flush_posted_) return;
  flush_posted_ = true;
  boost::asio::post(loop_, [this] { flush(); });
}

Status Logs::append(uint32_t number, const pb::LogData& data) {
  TRY(Open * open, this->open(number));
  TRY(open->journal->append(data));
  open->unsynced = true;
  mark_dirty(number, *open);
  return ok();
}

void Logs::prepare(uint32_t number) {
  if (const auto open = this->open(number); !open.ok()) {
    // The events are safe in the database; opening the journal later copies them.
    std::fprintf(stderr, "log of experiment %u: %s\n", number, open.error().message.c_str());
  }
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

uint64_t Logs::end(uint32_t number) {
  if (const auto found = open_.find(number); found != open_.end()) {
    return found->second.journal->written();
  }
  const auto reader = JournalReader::open(path(number));
  if (!reader.ok()) return 0;
  const auto size = (*reader)->size();
  return size.ok() ? *size : 0;
}

bool Logs::is_settled(uint32_t number) const {
  const auto found = open_.find(number);
  return found == open_.end() || !found->second.dirty;
}

void Logs::flush() {
  flush_posted_ = false;
  std::vector<uint32_t> again;
  for (const uint32_t number : std::exchange(dirty_, {})) {
    const auto found = open_.find(number);
    if (found == open_.end()) continue;
    Open& open = found->second;
    if (const auto status = open.journal->flush(); !status.ok()) {
      std::fprintf(stderr, "log of experiment %u: %s\n", number, status.error().message.c_str());
      again.push_back(number);
      continue;
    }
    open.dirty = false;
    wake(number);
    if (open.unsynced && !open.syncing) start_sync(number, open);
    close_if_done(number);
  }
  if (again.empty()) return;
  dirty_.insert(dirty_.end(), again.begin(), again.end());
  retry_.expires_after(kDiskRetry);
  retry_.async_wait([this](boost::system::error_code error) {
    if (!error) flush();
  });
}

void Logs::start_sync(uint32_t number, Open& open) {
  open.syncing = true;
  open.unsynced = false;
  const bool first = open.durable.empty();
  boost::asio::post(sync_thread_, [this, number, fd = open.journal->descriptor(),
                                   offsets = open.journal->offsets(), first]() mutable {
    bool good = fdatasync(fd) == 0;
    if (first) {   // the file's name must be durable too
      const int folder = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
      good = good && folder >= 0 && fsync(folder) == 0;
      if (folder >= 0) ::close(folder);
    }
    boost::asio::post(loop_, [this, number, offsets = std::move(offsets), good]() mutable {
      synced(number, std::move(offsets), good);
    });
  });
}

void Logs::synced(uint32_t number, std::map<LogKey, uint64_t> offsets, bool good) {
  const auto found = open_.find(number);
  INVARIANT(found != open_.end(), "a journal stays open while it is synced");
  Open& open = found->second;
  open.syncing = false;
  if (good) {
    for (const auto& [key, offset] : offsets) {
      uint64_t& durable = open.durable[key];
      if (offset <= durable) continue;
      durable = offset;
      on_durable_(key, offset);
    }
  } else {
    open.unsynced = true;
    std::fprintf(stderr, "log of experiment %u: sync failed, trying again\n", number);
  }
  if (open.unsynced && !open.dirty) start_sync(number, open);
  close_if_done(number);
}

void Logs::close(uint32_t number) {
  const auto found = open_.find(number);
  if (found == open_.end()) return;
  found->second.closing = true;
  close_if_done(number);
}

void Logs::close_if_done(uint32_t number) {
  const auto found = open_.find(number);
  if (found == open_.end()) return;
  const Open& open = found->second;
  if (open.closing && !open.dirty && !open.unsynced && !open.syncing) open_.erase(found);
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

}  // namespace dtrain::daemon
