// Any bytes as the spool of a replica, growing and shrinking under its reader. What comes out
// passed its checksum, in order and without a gap that isn't declared, and the reader always comes
// to an end.
//
// Steps besides those of steps.h:
//   o bytes    output at the stream's end, as the keeper writes it
//   d <n>      n bytes at the stream's end are declared lost
//   z <n>      n KiB of output, so that frames are larger than what is read at once
//   n          the next segment
//   u          the oldest segment is dropped
//   r          the reader that was there from the start reads what there is
// The first byte of the input is the offset at which readers start.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "runner/spool.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/steps.h"

using namespace dtrain;
using namespace dtrain::fuzz;
using namespace dtrain::runner;

namespace {

const ReplicaId kReplica{{4, 2}, Role::Worker, 1};

// A piece as a good frame holds it, and as a reader hands it out.
struct Piece {
  uint64_t offset = 0;
  int64_t unix_ms = 0;
  std::string bytes;
  uint64_t dropped_bytes = 0;
  uint64_t end() const { return offset + bytes.size() + dropped_bytes; }
  auto operator<=>(const Piece&) const = default;
};

std::optional<Piece> piece_in(const Frame& frame) {
  Piece piece;
  std::string_view payload = frame.payload;
  if (payload.size() < 16) return std::nullopt;
  std::memcpy(&piece.unix_ms, payload.data(), 8);
  std::memcpy(&piece.offset, payload.data() + 8, 8);
  payload.remove_prefix(16);
  if (frame.kind == kSpoolOutput) {
    piece.bytes = payload;
  } else if (frame.kind == kSpoolDropped && payload.size() == 8) {
    std::memcpy(&piece.dropped_bytes, payload.data(), 8);
  } else {
    return std::nullopt;
  }
  return piece;
}

// The segments of one input, on disk and here.
class Segments {
 public:
  explicit Segments(const LaunchDir& directory) : directory_(directory) {}
  ~Segments() {
    for (const auto& [sequence, bytes] : bytes_) ::unlink(path(sequence).c_str());
  }
  Segments(const Segments&) = delete;
  Segments& operator=(const Segments&) = delete;

  void apply(const Step& step) {
    if (step.what == 'n') start_next();
    if (step.what == 'u' && bytes_.size() > 1) drop_first();
    std::string& last = bytes_.rbegin()->second;
    const size_t before = last.size();
    fuzz::apply(step, last, kept_bytes_);
    if (step.what == 'o') add(last, kSpoolOutput, step.rest, step.rest.size());
    const uint64_t lost = step.number();
    if (step.what == 'd') {
      add(last, kSpoolDropped, {reinterpret_cast<const char*>(&lost), sizeof lost}, lost);
    }
    if (step.what == 'z' && large_++ < 3) {
      const std::string zeros(size_t{step.number()} << 10, '\0');
      add(last, kSpoolOutput, zeros, zeros.size());
    }
    put(path(bytes_.rbegin()->first), last);
    note_sound(last);
    // A reader goes on behind damage, where it saw the file end.
    note_sound(std::string_view(last).substr(std::min(before, last.size())));
  }

  // From here on nothing that is there is taken back, as by the writer, which cuts off half a
  // frame.
  void keep() { kept_bytes_ = bytes_.rbegin()->second.size(); }
  const std::map<uint64_t, std::string>& all() const { return bytes_; }
  const std::set<Piece>& sound() const { return sound_; }

 private:
  std::filesystem::path path(uint64_t sequence) const {
    return directory_.spool(kReplica, sequence);
  }
  void note_sound(std::string_view bytes) {
    for (const Frame& frame : good_frames(bytes)) {
      if (auto piece = piece_in(frame)) sound_.insert(std::move(*piece));
    }
  }
  void start_next() {
    bytes_[bytes_.rbegin()->first + 1];
    kept_bytes_ = 0;
  }
  void drop_first() {
    ::unlink(path(bytes_.begin()->first).c_str());
    bytes_.erase(bytes_.begin());
  }
  void add(std::string& file, uint32_t kind, std::string_view body, uint64_t size) {
    std::string head(16, '\0');
    std::memcpy(head.data() + 8, &end_, 8);
    append_frame(file, kind, head, body);
    end_ += size;
  }

  const LaunchDir& directory_;
  std::map<uint64_t, std::string> bytes_{{1, {}}};
  std::set<Piece> sound_;  // that were ever in a good frame
  size_t kept_bytes_ = 0;  // of the last one
  uint64_t end_ = 0;       // of the stream
  int large_ = 0;
};

// All that a reader hands out now. More calls than that would be a loop without end.
std::pair<std::vector<Piece>, int> drain(SpoolReader& reader, size_t pieces_ever) {
  std::vector<Piece> pieces;
  int damaged = 0;
  for (size_t calls = 0;; ++calls) {
    INVARIANT(calls <= 2 * pieces_ever + 2, "a reader comes to an end");
    const uint64_t before = reader.offset();
    auto next = reader.next();
    if (!next.ok()) {
      INVARIANT(next.error().code == Code::DataLoss, "all that is wrong is damage");
      INVARIANT(++damaged == 1, "damage is told once");
      continue;
    }
    if (!*next) break;
    const SpoolChunk& chunk = **next;
    INVARIANT(chunk.offset == before, "pieces follow each other");
    INVARIANT(chunk.end_offset() == reader.offset() && reader.offset() > before,
              "the reader gets on");
    INVARIANT(chunk.bytes.empty() != (chunk.dropped_bytes == 0), "a piece is bytes or a hole");
    pieces.push_back({chunk.offset, chunk.unix_ms, std::string(chunk.bytes), chunk.dropped_bytes});
  }
  return {pieces, damaged};
}

// What a reader from `offset` on finds in segments at rest, told from them as a whole.
std::pair<std::vector<Piece>, int> expected(const Segments& segments, uint64_t offset) {
  std::vector<Piece> pieces;
  std::string_view left;
  for (const auto& [sequence, bytes] : segments.all()) {
    left = bytes;
    for (const Frame& frame : good_frames(bytes)) {
      left.remove_prefix(frame.size_bytes);
      auto piece = piece_in(frame);
      if (!piece || piece->end() <= offset || piece->end() < piece->offset) continue;
      if (piece->offset > offset) {
        pieces.push_back({offset, piece->unix_ms, {}, piece->offset - offset});
        offset = piece->offset;
      }
      if (piece->end() == offset) continue;  // nothing but the gap before it
      const uint64_t known = offset - piece->offset;
      piece->offset = offset;
      offset = piece->end() - known;
      piece->bytes.erase(0, piece->bytes.empty() ? 0 : known);
      if (piece->dropped_bytes != 0) piece->dropped_bytes -= known;
      pieces.push_back(std::move(*piece));
    }
  }
  Frame frame;
  return {pieces, read_frame(left, frame) == FrameStatus::Corrupt ? 1 : 0};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Scratch scratch;
  static const LaunchDir directory(scratch.path());
  if (size == 0) return 0;
  const uint64_t start = data[0];
  Segments segments(directory);
  SpoolReader follower(directory, kReplica, start);
  for (const Step& step : steps_of(data + 1, size - 1)) {
    segments.apply(step);
    if (step.what != 'r') continue;
    segments.keep();
    const std::set<Piece>& sound = segments.sound();
    for (const Piece& got : drain(follower, sound.size()).first) {
      const bool passed = std::any_of(sound.begin(), sound.end(), [&](const Piece& piece) {
        return piece.bytes.ends_with(got.bytes) && piece.end() == got.end();
      });
      INVARIANT(got.bytes.empty() || passed, "bytes passed their checksum");
    }
  }
  SpoolReader fresh(directory, kReplica, start);
  INVARIANT(drain(fresh, segments.sound().size()) == expected(segments, start),
            "all that is good is found");
  INVARIANT(fresh.is_last(), "a reader that is through knows it");
  return 0;
}
