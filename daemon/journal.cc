#include "daemon/journal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "schema/framing.h"

namespace dtrain::daemon {

namespace {

// What may wait for a disk that takes nothing, before the runners are told to come back later.
constexpr size_t kWaitingBytesMax = size_t{32} << 20;
constexpr size_t kReadBytes = size_t{256} << 10;

// Who asks for replicas is not told of the experiment as a whole.
bool matches(const JournalReader::Filter& filter, const std::string& id) {
  const auto subject = parse_id_pattern(id);
  if (!subject.ok()) return false;
  if (subject->role) {
    return filter.pattern.matches(
        ReplicaId{subject->experiment, *subject->role, subject->index.value_or(0)});
  }
  return !filter.pattern.names_replicas() && filter.pattern.matches(subject->experiment);
}

bool wanted(const JournalReader::Filter& filter, const pb::LogChunk& log) {
  return filter.with_logs && (filter.attempt == 0 || filter.attempt == log.attempt()) &&
         log.time_unix_ms() >= filter.since_unix_ms && matches(filter, log.replica());
}

bool ends_record(int fd, uint64_t end) {
  uint32_t payload = 0;
  const auto read = [fd](void* to, size_t bytes, uint64_t from) {
    return pread(fd, to, bytes, static_cast<off_t>(from)) == static_cast<ssize_t>(bytes);
  };
  if (end < kFrameOverheadBytes || !read(&payload, sizeof payload, end - kFrameTrailerBytes)) return false;
  const uint64_t whole = uint64_t{payload} + kFrameOverheadBytes;
  if (payload > kFramePayloadMaxBytes || whole > end) return false;
  std::string bytes(whole, '\0');
  Frame frame;
  return read(bytes.data(), whole, end - whole) && read_frame(bytes, frame) == FrameStatus::Good && frame.size_bytes == whole;
}

}  // namespace

Journal::~Journal() {
  if (fd_ >= 0) close(fd_);
}

Result<std::unique_ptr<Journal>> Journal::open(const std::filesystem::path& path, const pb::JournalPlace& place) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return errno_error(fmt::format("open {}", path.string()), errno);
  std::unique_ptr<Journal> journal(new Journal(fd, path));
  uint64_t from = 0;
  if (place.bytes() > 0 && ends_record(fd, place.bytes())) {
    from = place.bytes();
    journal->state_events_ = place.state_events();
    for (const pb::OutputEnd& end : place.ends()) journal->next_offset_[{end.replica(), end.attempt()}] = end.offset();
  }
  TRY(journal->written_, scan_frames(fd, from, [&](uint64_t, const Frame& frame) {
        if (frame.kind == kJournalState) ++journal->state_events_;
        pb::LogChunk log;
        if (frame.kind != kJournalLog || !log.ParseFromString(std::string(frame.payload))) return;
        journal->next_offset_[{log.replica(), log.attempt()}] = log.offset() + log.data().size();
      }));
  struct stat file;
  if (fstat(fd, &file) != 0) return errno_error(fmt::format("stat {}", path.string()), errno);
  journal->cut_bytes_ = static_cast<uint64_t>(file.st_size) - journal->written_;
  if (ftruncate(fd, static_cast<off_t>(journal->written_)) != 0) {
    return errno_error(fmt::format("truncate {}", path.string()), errno);
  }
  journal->synced_ = journal->written_;
  return journal;
}

Status Journal::append(const pb::LogData& data) {
  const LogKey key{data.replica(), data.attempt()};
  const uint64_t next = next_offset(key);
  const uint64_t end = data.offset() + data.data().size();
  if (end <= next) return ok();
  if (data.offset() > next + data.dropped_bytes()) {
    return Error{Code::Aborted,
                 fmt::format("output of {} from {} on is missing before {}", data.replica(), next,
                             data.offset()),
                 ""};
  }
  if (unsynced_.size() - flushed_ > kWaitingBytesMax) {
    return Error{Code::ResourceExhausted, "the logs' disk takes nothing more", ""};
  }
  const uint64_t known = next > data.offset() ? next - data.offset() : 0;
  pb::LogChunk chunk;
  chunk.set_replica(data.replica());
  chunk.set_attempt(data.attempt());
  chunk.set_offset(data.offset() + known);
  chunk.set_time_unix_ms(data.time_unix_ms());
  chunk.set_data(data.data().substr(known));
  chunk.set_dropped_bytes(data.offset() > next ? data.offset() - next : 0);
  append_frame(unsynced_, kJournalLog, chunk.SerializeAsString(), {});
  next_offset_[key] = end;
  grown_[key] = end;
  return ok();
}

void Journal::append(const pb::StateEvent& event) {
  append_frame(unsynced_, kJournalState, event.SerializeAsString(), {});
  ++state_events_;
}

Status Journal::flush() {
  if (has_waiting() && fd_ < 0) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
    if (fd_ < 0) return errno_error(fmt::format("open {}", path_.string()), errno);
  }
  while (has_waiting()) {
    // At its place rather than at the end: a rewrite goes over what is there.
    const ssize_t n = pwrite(fd_, unsynced_.data() + flushed_, unsynced_.size() - flushed_,
                             static_cast<off_t>(synced_ + flushed_));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error("write the experiment's log", errno);
    flushed_ += static_cast<size_t>(n);
  }
  written_ = synced_ + flushed_;
  return ok();
}

void Journal::synced(uint64_t end) {
  INVARIANT(end >= synced_ && end <= synced_ + flushed_, "what is synced was written");
  const size_t bytes = end - synced_;
  unsynced_.erase(0, bytes);
  flushed_ -= bytes;
  synced_ = end;
}

void Journal::rewrite() { flushed_ = 0; }

void Journal::rest() {
  INVARIANT(unsynced_.empty(), "only a later sync of the same descriptor tells of a failed write");
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

uint64_t Journal::next_offset(const LogKey& key) const {
  const auto found = next_offset_.find(key);
  return found == next_offset_.end() ? 0 : found->second;
}

JournalReader::~JournalReader() { close(fd_); }

Result<std::unique_ptr<JournalReader>> JournalReader::open(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno_error(fmt::format("open {}", path.string()), errno);
  return std::unique_ptr<JournalReader>(new JournalReader(fd));
}

Result<uint64_t> JournalReader::size() const {
  struct stat status;
  if (fstat(fd_, &status) != 0) return errno_error("stat the experiment's log", errno);
  return static_cast<uint64_t>(status.st_size);
}

// Makes the file's bytes [offset, offset + bytes) available in buffer_, as far as they exist.
Status JournalReader::fill(uint64_t offset, size_t bytes) {
  buffer_.resize(bytes);
  buffer_offset_ = offset;
  size_t done = 0;
  while (done < bytes) {
    const ssize_t n = pread(fd_, buffer_.data() + done, bytes - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error("read the experiment's log", errno);
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  buffer_.resize(done);
  return ok();
}

Result<uint64_t> JournalReader::read(uint64_t cursor, uint64_t end, size_t bytes_max,
                                     const Filter& filter, pb::WatchBatch& batch) {
  const uint64_t first = cursor;
  const uint64_t last = cursor + std::min(kLookBytes, end - cursor);
  size_t want = kReadBytes;
  size_t added = 0;
  while (cursor < last && added < bytes_max) {
    TRY(fill(cursor, std::min<size_t>(want, end - cursor)));
    size_t used = 0;
    Frame frame;
    FrameStatus status = FrameStatus::Good;
    while (added < bytes_max) {
      status = read_frame(std::string_view(buffer_).substr(used), frame);
      if (status != FrameStatus::Good) break;
      used += frame.size_bytes;
      pb::WatchItem item;
      item.set_cursor(cursor + used);
      if (frame.kind == kJournalLog && filter.with_logs) {
        pb::LogChunk& log = *item.mutable_log();
        if (!log.ParseFromArray(frame.payload.data(), static_cast<int>(frame.payload.size()))) continue;
        if (!wanted(filter, log)) continue;
      } else if (frame.kind == kJournalState) {
        pb::StateEvent& state = *item.mutable_state();
        if (!state.ParseFromArray(frame.payload.data(), static_cast<int>(frame.payload.size()))) continue;
        if (state.time_unix_ms() < filter.since_unix_ms || !matches(filter, state.id())) continue;
        if (filter.attempt != 0 && filter.attempt != state.attempt()) continue;
      } else {
        continue;
      }
      added += frame.size_bytes;
      *batch.add_items() = std::move(item);
    }
    cursor += used;
    if (status == FrameStatus::Corrupt && cursor > first) return cursor;
    if (status == FrameStatus::Corrupt) {
      return Error{Code::DataLoss, fmt::format("the log is damaged at {}", cursor), ""};
    }
    if (used == 0) {
      if (want >= kFramePayloadMaxBytes + kFrameOverheadBytes || buffer_.size() < want) return cursor;
      want = kFramePayloadMaxBytes + kFrameOverheadBytes;   // one frame larger than the buffer
    }
  }
  return cursor;
}

// The file's bytes [end - bytes, end), as far as they exist. Reads more of what lies before them, for
// whoever goes backwards.
Result<std::string_view> JournalReader::before(uint64_t end, size_t bytes) {
  const uint64_t from = end - bytes;
  if (from < buffer_offset_ || end > buffer_offset_ + buffer_.size()) {
    const uint64_t start = end - std::min<uint64_t>(end, std::max(bytes, kReadBytes));
    TRY(fill(start, end - start));
  }
  if (end > buffer_offset_ + buffer_.size()) return std::string_view();
  return std::string_view(buffer_).substr(from - buffer_offset_, bytes);
}

Result<bool> JournalReader::find(Tail& tail, const Filter& filter) {
  const uint64_t last = tail.at_ - std::min(tail.at_, kLookBytes);
  while (tail.at_ >= kFrameOverheadBytes) {
    if (tail.at_ <= last) return false;
    TRY(const std::string_view trailer, before(tail.at_, kFrameTrailerBytes));
    uint32_t payload = 0;
    if (trailer.size() < sizeof payload) break;
    std::memcpy(&payload, trailer.data(), sizeof payload);
    const uint64_t whole = uint64_t{payload} + kFrameOverheadBytes;
    if (payload > kFramePayloadMaxBytes || whole > tail.at_) break;
    TRY(const std::string_view bytes, before(tail.at_, whole));
    Frame frame;
    if (read_frame(bytes, frame) != FrameStatus::Good) break;
    tail.at_ -= whole;
    pb::LogChunk log;
    if (frame.kind != kJournalLog ||
        !log.ParseFromArray(frame.payload.data(), static_cast<int>(frame.payload.size())) ||
        !wanted(filter, log)) {
      continue;
    }
    const std::string& data = log.data();
    size_t position = data.size();
    // The newline that ends the last line starts no line of its own.
    if (tail.last_chunk_ && position > 0 && data[position - 1] == '\n') --position;
    tail.last_chunk_ = tail.last_chunk_ && data.empty();
    tail.cursor = tail.at_;
    while (position > 0) {
      const size_t newline = data.rfind('\n', position - 1);
      if (newline == std::string::npos) break;
      if (--tail.lines_left_ == 0) {
        tail.skip_bytes = newline + 1;
        return true;
      }
      position = newline;
    }
  }
  return true;  // fewer lines than asked for: from the first one on
}

}  // namespace dtrain::daemon
