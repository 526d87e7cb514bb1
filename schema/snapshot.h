// A snapshot: the exact content of a project directory, named by the SHA-256 of its file list.
//
// take_snapshot walks a directory once, in sorted order, hashing only files whose stat differs from
// the cache; materialise() writes the same tree somewhere else. What is in and what is out is decided
// in ignore.h.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "schema/dtrain.pb.h"
#include "schema/result.h"

namespace dtrain {

using Sha256 = std::array<unsigned char, 32>;

Sha256 sha256(std::string_view bytes);
std::string to_hex(const Sha256& digest);
std::string to_bytes(const Sha256& digest);                 // as messages carry it
Result<Sha256> sha256_from_bytes(std::string_view bytes);   // InvalidArgument unless 32 bytes

struct SnapshotLimits {
  uint64_t file_bytes_max = uint64_t{10} << 30;    // one file; larger is refused with how to raise it
  uint64_t entries_max = 1'000'000;
};

// One line of `train --explain-sync`.
struct SyncDecision {
  std::string path;
  bool included = false;
  std::string why;        // "ignored by .gitignore:3 '*.o'", "virtual environment", "symlink leaves the project"
};

struct SnapshotOptions {
  std::filesystem::path stat_cache;     // empty: hash everything
  SnapshotLimits limits;
  // Called now and then while hashing: files and bytes done so far.
  std::function<void(uint64_t files, uint64_t bytes)> progress;
  // When set, called for each path the walk decides about.
  std::function<void(const SyncDecision&)> explain;
};

struct Snapshot {
  pb::Manifest manifest;
  std::string manifest_bytes;   // deterministic serialisation
  Sha256 root{};                // of manifest_bytes
  uint64_t total_bytes = 0;     // of regular files
  uint64_t file_count = 0;      // regular files
  std::vector<std::string> notices;   // one-line warnings: absolute symlinks, what stayed out by default
  // The largest top-level entries, biggest first, for the question about a large snapshot.
  std::vector<std::pair<std::string, uint64_t>> largest;
};

// A file that changes while it is read is read again (a few times, then a clear error). A symlink out
// of the tree by ".." is refused; an absolute one is kept with a notice. Sockets, fifos and devices
// stay out with a notice.
Result<Snapshot> take_snapshot(const std::filesystem::path& root, const SnapshotOptions& options);

// Checks that an untrusted manifest can be written below a directory without leaving it: sorted,
// unique, relative paths without "." or "..", parents present and directories, sane kinds and modes.
Status check_manifest(const pb::Manifest& manifest);

// Writes the tree of a checked manifest into `target` (which must not exist). `blob` writes the bytes
// of one file's blob into the open descriptor. Nothing outside `target` is touched whatever the
// manifest says. On error `target` is removed.
Status materialise(const pb::Manifest& manifest, const std::filesystem::path& target,
                   const std::function<Status(const Sha256&, uint64_t size, int fd)>& blob);

// zstd, one frame a blob, as it travels and lies in the daemon's packs.
Result<std::string> compress_blob(std::string_view bytes);
// DataLoss when the frame is damaged or does not decompress to exactly `size` bytes.
Result<std::string> decompress_blob(std::string_view frame, uint64_t size);

}  // namespace dtrain
