#include "runner/spool.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "schema/disk_room.h"

namespace dtrain::runner {
namespace {

constexpr size_t kHeadBytes = 16;
// Few replicas write much: a buffer starts small and grows when a read fills it.
constexpr size_t kReadFirstBytes = size_t{64} << 10;
constexpr size_t kReadAheadBytes = size_t{2} << 20;

std::string_view view(const void* data, size_t size) {
  return {static_cast<const char*>(data), size};
}

size_t larger(size_t buffer_bytes) {
  return std::max(kReadFirstBytes, 2 * buffer_bytes);
}

struct Head {
  int64_t unix_ms;
  uint64_t offset;
};
static_assert(sizeof(Head) == kHeadBytes);

// What a frame says about the stream: bytes of it, or how many are gone.
struct Piece {
  Head head{};
  std::string_view bytes;
  uint64_t dropped_bytes = 0;
  uint64_t size() const { return bytes.size() + dropped_bytes; }
};

// nullopt: a frame of a kind this version doesn't know, or too short for its kind.
std::optional<Piece> parse_piece(const Frame& frame) {
  Piece piece;
  if (frame.payload.size() < kHeadBytes) return std::nullopt;
  std::memcpy(&piece.head, frame.payload.data(), kHeadBytes);
  const std::string_view body = frame.payload.substr(kHeadBytes);
  if (frame.kind == kSpoolOutput) {
    piece.bytes = body;
    return piece;
  }
  if (frame.kind != kSpoolDropped || body.size() != sizeof piece.dropped_bytes) return std::nullopt;
  std::memcpy(&piece.dropped_bytes, body.data(), sizeof piece.dropped_bytes);
  return piece;
}

}  // namespace

// ---- writing

SpoolWriter::SpoolWriter(const LaunchDir& directory, ReplicaId replica, uint64_t limit_bytes)
    : directory_(directory),
      replica_(replica),
      limit_bytes_(limit_bytes == 0 ? 0 : std::max(limit_bytes, 2 * kSpoolSegmentBytes)) {}

void SpoolWriter::append(std::string_view bytes, int64_t unix_ms) {
  INVARIANT(bytes.size() <= kFramePayloadMaxBytes - kHeadBytes, "one frame holds one chunk");
  if (bytes.empty()) return;
  // A loss is written down before what follows it, so that frames stay in the stream's order.
  const bool in_order = pending_loss_bytes_ == 0 || write_loss(unix_ms);
  const Head head{unix_ms, end_offset_};
  end_offset_ += bytes.size();
  if (!in_order || !has_room(bytes.size()) ||
      !write_frame(kSpoolOutput, view(&head, sizeof head), bytes)) {
    pending_loss_bytes_ += bytes.size();
    return;
  }
  drop_past_limit();
}

// The daemon's log may lie on the same disk: what it has no room for when it comes would wait for ever.
bool SpoolWriter::has_room(size_t more_bytes) {
  if (!file_ && !open_segment()) return false;
  const uint64_t on_its_way = end_offset_ - std::min(end_offset_, acknowledged_);
  return spool_room_bytes(file_.get()) >= on_its_way + more_bytes;
}

bool SpoolWriter::write_loss(int64_t unix_ms) {
  const Head head{unix_ms, end_offset_ - pending_loss_bytes_};
  if (!write_frame(kSpoolDropped, view(&head, sizeof head),
                   view(&pending_loss_bytes_, sizeof pending_loss_bytes_))) {
    return false;
  }
  lost_bytes_ += std::exchange(pending_loss_bytes_, 0);
  return true;
}

bool SpoolWriter::write_frame(uint32_t kind, std::string_view head, std::string_view body) {
  if ((!file_ || segments_.back().size_bytes >= kSpoolSegmentBytes) && !open_segment())
    return false;
  buffer_.clear();
  append_frame(buffer_, kind, head, body);

  Segment& segment = segments_.back();
  std::string_view rest = buffer_;
  while (!rest.empty()) {
    const ssize_t written = ::write(file_.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      // Half a frame would hide everything after it.
      (void)!::ftruncate(file_.get(), static_cast<off_t>(segment.size_bytes));
      return false;
    }
    rest.remove_prefix(static_cast<size_t>(written));
  }
  segment.size_bytes += buffer_.size();
  segment.end_offset = end_offset_;
  stored_bytes_ += buffer_.size();
  return true;
}

bool SpoolWriter::open_segment() {
  const auto path = directory_.spool(replica_, next_sequence_);
  Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600));
  if (!file) return false;
  file_ = std::move(file);
  segments_.push_back({next_sequence_++, end_offset_, 0});
  return true;
}

void SpoolWriter::drop_past_limit() {
  while (limit_bytes_ != 0 && stored_bytes_ > limit_bytes_ && segments_.size() > 1) {
    stored_bytes_ -= segments_.front().size_bytes;
    ::unlink(directory_.spool(replica_, segments_.front().sequence).c_str());
    segments_.pop_front();
  }
}

void SpoolWriter::acknowledge(uint64_t offset) {
  acknowledged_ = std::max(acknowledged_, offset);
  while (segments_.size() > 1 && segments_.front().end_offset <= offset) {
    stored_bytes_ -= segments_.front().size_bytes;
    ::unlink(directory_.spool(replica_, segments_.front().sequence).c_str());
    segments_.pop_front();
  }
}

void SpoolWriter::finish(int64_t unix_ms) {
  if (pending_loss_bytes_ > 0) write_loss(unix_ms);
}

// ---- reading

SpoolReader::SpoolReader(SpoolListing& spools, ReplicaId replica, uint64_t offset)
    : spools_(&spools), replica_(replica), offset_(offset) {}

SpoolReader::SpoolReader(const LaunchDir& directory, ReplicaId replica, uint64_t offset)
    : own_spools_(std::make_unique<SpoolListing>(directory)),
      spools_(own_spools_.get()),
      replica_(replica),
      offset_(offset) {}

std::string_view SpoolReader::unread() const {
  return std::string_view(buffer_).substr(taken_, filled_ - taken_);
}

Result<std::optional<SpoolChunk>> SpoolReader::next() {
  hindered_ = false;
  taken_ += frame_bytes_;
  file_position_ += std::exchange(frame_bytes_, 0);
  for (;;) {
    Frame frame;
    FrameStatus status = file_ ? peek(frame) : FrameStatus::Incomplete;
    if (status != FrameStatus::Good) {
      const uint64_t later = later_sequence();
      // Once a later segment is there nothing is added to this one; but something may have been
      // between the look above and now.
      if (later != 0 && file_) status = peek(frame);
      if (later != 0 && status != FrameStatus::Good) {
        if (!open_segment(later)) return std::optional<SpoolChunk>();
        continue;
      }
    }
    switch (status) {
      case FrameStatus::Good:
        if (std::optional<SpoolChunk> chunk = take(frame)) return chunk;
        break;
      case FrameStatus::Incomplete:
        return std::optional<SpoolChunk>();
      case FrameStatus::Corrupt:
        return skip_damage();
    }
  }
}

// In the last segment: what comes after it is not found again before the next segment.
Error SpoolReader::skip_damage() {
  struct stat file = {};
  ::fstat(file_.get(), &file);
  file_position_ = static_cast<uint64_t>(file.st_size);
  taken_ = filled_ = 0;
  return {Code::DataLoss,
          fmt::format("{} is damaged", spools_->directory().spool(replica_, sequence_).string()), ""};
}

// Forgets the frame unless it holds something from offset_ on.
std::optional<SpoolChunk> SpoolReader::take(const Frame& frame) {
  const std::optional<Piece> piece = parse_piece(frame);
  const uint64_t end = piece ? piece->head.offset + piece->size() : 0;
  if (!piece || end <= offset_ || end < piece->head.offset) {
    taken_ += frame.size_bytes;
    file_position_ += frame.size_bytes;
    return std::nullopt;
  }
  if (piece->head.offset > offset_) {
    // Segments before this one were dropped. The frame itself comes with the next call.
    const SpoolChunk hole{offset_, piece->head.unix_ms, {}, piece->head.offset - offset_};
    offset_ = piece->head.offset;
    return hole;
  }
  const uint64_t known = offset_ - piece->head.offset;
  SpoolChunk chunk{offset_, piece->head.unix_ms, {}, 0};
  if (piece->dropped_bytes > 0) {
    chunk.dropped_bytes = piece->dropped_bytes - known;
  } else {
    chunk.bytes = piece->bytes.substr(known);
  }
  offset_ = end;
  frame_bytes_ = frame.size_bytes;
  return chunk;
}

// The frame at file_position_. What can't be read as one is always read afresh from the file: the
// writer takes back half a frame when the disk is full.
FrameStatus SpoolReader::peek(Frame& frame) {
  FrameStatus status = read_frame(unread(), frame);
  if (status == FrameStatus::Good) return status;
  const bool was_full = filled_ == buffer_.size();
  if (was_full && filled_ < kReadAheadBytes) buffer_.resize(larger(filled_));
  taken_ = filled_ = 0;
  while (read_ahead()) {
    status = read_frame(unread(), frame);
    if (status != FrameStatus::Incomplete) return status;
  }
  return filled_ == 0 ? FrameStatus::Incomplete : status;
}

// False: no more bytes in the file than are in the buffer.
bool SpoolReader::read_ahead() {
  if (filled_ == buffer_.size()) {
    if (filled_ >= kFramePayloadMaxBytes + kFrameOverheadBytes) return false;
    buffer_.resize(larger(filled_));
  }
  ssize_t got;
  do {
    got = ::pread(file_.get(), buffer_.data() + filled_, buffer_.size() - filled_,
                  static_cast<off_t>(file_position_ + filled_));
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return false;
  filled_ += static_cast<size_t>(got);
  return true;
}

bool SpoolReader::open_segment(uint64_t sequence) {
  Fd file(::open(spools_->directory().spool(replica_, sequence).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) {
    hindered_ = errno != ENOENT;  // else removed meanwhile: the next call sees the one after it
    return false;
  }
  file_ = std::move(file);
  sequence_ = sequence;
  file_position_ = 0;
  taken_ = filled_ = 0;
  return true;
}

// The segment after sequence_, 0: none. It has the next number unless it was removed, which happens
// only after ours was.
uint64_t SpoolReader::later_sequence() {
  if (::access(spools_->directory().spool(replica_, sequence_ + 1).c_str(), F_OK) == 0) return sequence_ + 1;
  struct stat file = {};
  if (file_ && ::fstat(file_.get(), &file) == 0 && file.st_nlink > 0) return 0;
  const auto left = sequences();
  hindered_ = !left;
  return left && !left->empty() && *left->begin() > sequence_ ? *left->begin() : 0;
}

bool SpoolReader::is_last() const {
  const auto left = sequences();
  return left && (left->empty() || *left->rbegin() <= sequence_);
}

std::optional<std::set<uint64_t>> SpoolReader::sequences() const {
  if (own_spools_) own_spools_->forget();
  return spools_->sequences(replica_);
}

}  // namespace dtrain::runner
