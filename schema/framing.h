// Records in an append-only file, each with a checksum: the spools of the keeper and the journals of
// the daemon share this one format, so that one reader and one recovery serve both.
//
//   header  16 bytes, little-endian: u32 payload length | u32 kind | u64 XXH3 of (kind, payload)
//   payload `length` bytes
//   trailer 4 bytes: u32 payload length, so that a reader can walk backwards
//
// A torn last write is found by the checksum; everything before it is good.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "schema/result.h"

namespace dtrain {

inline constexpr uint32_t kFrameHeaderBytes = 16;
inline constexpr uint32_t kFrameTrailerBytes = 4;
inline constexpr uint32_t kFrameOverheadBytes = kFrameHeaderBytes + kFrameTrailerBytes;
inline constexpr uint32_t kFramePayloadMaxBytes = 4u << 20;

// Appends one frame to `out`. payload may come in two parts (a small head, then bytes), to spare a copy.
void append_frame(std::string& out, uint32_t kind, std::string_view head, std::string_view body);

struct Frame {
  uint32_t kind = 0;
  std::string_view payload;   // into the buffer given to read_frame
  size_t size_bytes = 0;      // whole frame on disk
};

enum class FrameStatus { Good, Incomplete, Corrupt };

// Reads the frame at the start of `bytes`. Incomplete: more bytes may make it good (or a torn end).
FrameStatus read_frame(std::string_view bytes, Frame& frame);

// The offset just after the last good frame of the file, reading at most `from`..end; what lies past
// it is a torn write to be cut off. `visit` (may be empty) sees each good frame and its offset.
Result<uint64_t> scan_frames(int fd, uint64_t from,
                             const std::function<void(uint64_t offset, const Frame&)>& visit);

}  // namespace dtrain
