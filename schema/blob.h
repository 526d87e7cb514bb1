// Blobs as they travel and as they lie in the daemon's packs: one zstd frame each, cut into parts.
//
// Everything here works in bounded memory, however large a blob is, and verifies on both ends that
// the bytes are those their SHA-256 names.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "schema/result.h"
#include "schema/sha256.h"

namespace dtrain {

inline constexpr size_t kBlobPartBytes = 256 << 10;  // of the frame, in one message

Result<std::string> compress_blob(std::string_view bytes);
// DataLoss when the frame is damaged or does not decompress to exactly `size` bytes.
Result<std::string> decompress_blob(std::string_view frame, uint64_t size);

using BlobPartSink = std::function<Status(std::string_view part, bool last)>;

// Compresses one blob after another; making one is the costly part.
class BlobEncoder {
 public:
  BlobEncoder();
  ~BlobEncoder();
  BlobEncoder(const BlobEncoder&) = delete;
  BlobEncoder& operator=(const BlobEncoder&) = delete;

  // The file's bytes as one frame in parts. Aborted when they are not the `size` bytes that hash to
  // `expected`: the file changed. What was sunk until then is to be thrown away.
  Status encode_file(int fd, uint64_t size, const Sha256& expected, const BlobPartSink& sink);
  Status encode(std::string_view bytes, const BlobPartSink& sink);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Decompresses and verifies one blob after another, as its parts come in.
class BlobDecoder {
 public:
  BlobDecoder();
  ~BlobDecoder();
  BlobDecoder(const BlobDecoder&) = delete;
  BlobDecoder& operator=(const BlobDecoder&) = delete;

  // Starts a blob. Its bytes go to the end of `out` (which may be null), and to `fd` (unless < 0).
  void begin(const Sha256& expected, uint64_t size, int fd, std::string* out = nullptr);
  // DataLoss as soon as the bytes can't be the blob's.
  Status add(std::string_view part);
  // After the last part: DataLoss unless exactly `size` bytes came and hash to `expected`.
  Status finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dtrain
