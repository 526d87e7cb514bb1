#include "schema/framing.h"

#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

namespace dtrain {

static_assert(std::endian::native == std::endian::little, "frames are little-endian on disk");

namespace {

// The kind is the seed, so that head and body are hashed where they lie: one contiguous payload.
uint64_t checksum(uint32_t kind, std::string_view payload) {
  return XXH3_64bits_withSeed(payload.data(), payload.size(), kind);
}

template <typename T>
T load(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace

void append_frame(std::string& out, uint32_t kind, std::string_view head, std::string_view body) {
  INVARIANT(head.size() + body.size() <= kFramePayloadMaxBytes, "a frame's payload is bounded");
  const uint32_t length = static_cast<uint32_t>(head.size() + body.size());
  const size_t start = out.size();

  char header[kFrameHeaderBytes] = {};
  std::memcpy(header, &length, 4);
  std::memcpy(header + 4, &kind, 4);
  out.append(header, sizeof header);
  out.append(head);
  out.append(body);

  const uint64_t sum =
      checksum(kind, std::string_view(out).substr(start + kFrameHeaderBytes, length));
  std::memcpy(out.data() + start + 8, &sum, 8);
  out.append(reinterpret_cast<const char*>(&length), kFrameTrailerBytes);
}

FrameStatus read_frame(std::string_view bytes, Frame& frame) {
  if (bytes.size() < kFrameHeaderBytes) return FrameStatus::Incomplete;
  const auto length = load<uint32_t>(bytes.data());
  if (length > kFramePayloadMaxBytes) return FrameStatus::Corrupt;
  if (bytes.size() < length + kFrameOverheadBytes) return FrameStatus::Incomplete;

  const auto kind = load<uint32_t>(bytes.data() + 4);
  const std::string_view payload = bytes.substr(kFrameHeaderBytes, length);
  const bool good = load<uint32_t>(bytes.data() + kFrameHeaderBytes + length) == length &&
                    load<uint64_t>(bytes.data() + 8) == checksum(kind, payload);
  if (!good) return FrameStatus::Corrupt;
  frame = {kind, payload, length + kFrameOverheadBytes};
  return FrameStatus::Good;
}

Result<uint64_t> scan_frames(int fd, uint64_t from,
                             const std::function<void(uint64_t offset, const Frame&)>& visit) {
  constexpr size_t kChunkMaxBytes = 1u << 20;
  size_t chunk_bytes = 16u << 10;  // most files are short
  std::string buffer;  // the file from offset `good - start` on
  size_t start = 0;    // of the first byte not yet taken from buffer
  uint64_t good = from;
  for (;;) {
    Frame frame;
    const FrameStatus status = read_frame(std::string_view(buffer).substr(start), frame);
    if (status == FrameStatus::Corrupt) return good;
    if (status == FrameStatus::Good) {
      if (visit) visit(good, frame);
      start += frame.size_bytes;
      good += frame.size_bytes;
      continue;
    }
    buffer.erase(0, start);
    start = 0;
    const size_t have = buffer.size();
    buffer.resize(have + chunk_bytes);
    const ssize_t got =
        ::pread(fd, buffer.data() + have, chunk_bytes, static_cast<off_t>(good + have));
    if (got < 0 && errno == EINTR) {
      buffer.resize(have);
      continue;
    }
    if (got < 0) return errno_error("reading records", errno);
    buffer.resize(have + static_cast<size_t>(got));
    if (got == 0) return good;
    chunk_bytes = std::min(2 * chunk_bytes, kChunkMaxBytes);
  }
}

}  // namespace dtrain
