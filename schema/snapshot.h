// A snapshot: the exact content of a project directory, named by the SHA-256 of its file list.
//
// take_snapshot walks a directory once, in sorted order, then reads only the files whose stat
// differs from the cache; materialise.h writes the same tree somewhere else. What is in and what is
// out is decided in ignore.h, the list itself is manifest.h's, the bytes of files travel as blob.h
// says.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "schema/blob.h"
#include "schema/manifest.h"
#include "schema/materialise.h"
#include "schema/result.h"
#include "schema/sha256.h"

namespace dtrain {

struct SnapshotLimits {
  uint64_t file_bytes_max = uint64_t{10} << 30;  // one file; larger is refused with how to raise it
  uint64_t entries_max = kManifestEntriesMax;
  std::string how_to_raise;  // of file_bytes_max; ends the hint: ", or raise the limit by ..."
};

// One line of `train --explain-sync`.
struct SyncDecision {
  std::string path;
  bool included = false;
  std::string
      why;  // ".gitignore:3 '*.o'", "virtual environment", "a socket"; empty: nothing says no
};

// What stat says of a project, before any file is read.
struct ProjectSize {
  uint64_t total_bytes = 0;  // of regular files
  uint64_t file_count = 0;
  uint64_t unread_bytes = 0;  // of files that the stat cache does not know
  // The largest top-level entries ("data/", "model.bin"), biggest first.
  std::vector<std::pair<std::string, uint64_t>> largest;
};

struct SnapshotOptions {
  std::filesystem::path stat_cache;  // empty: hash everything
  SnapshotLimits limits;
  // Called when all is found and nothing read yet; its error ends the snapshot.
  std::function<Status(const ProjectSize&)> before_reading;
  // Called now and then while hashing: bytes done so far.
  std::function<void(uint64_t bytes)> progress;
  // When set, called for each path the walk decides about.
  std::function<void(const SyncDecision&)> explain;
};

struct Notice {
  std::string text;   // one line
  std::string about;  // who was told this needs no other notice about the same
};

struct Snapshot {
  std::string manifest_bytes;  // parse_manifest() reads it
  Sha256 root{};               // of manifest_bytes
  uint64_t total_bytes = 0;    // of regular files
  uint64_t file_count = 0;     // regular files
  uint64_t hashed_count = 0;   // of them, those that had to be read
  std::vector<Notice> notices;  // absolute symlinks, what stayed out by default
};

// A file that changes while it is read is read again (a few times, then a clear error). A symlink
// out of the tree by ".." is refused; an absolute one is kept with a notice. Sockets, fifos and
// devices stay out with a notice.
Result<Snapshot> take_snapshot(const std::filesystem::path& root, const SnapshotOptions& options);

// Only the walk, for what it refuses and tells options.explain and options.before_reading: reads no file.
Status explain_snapshot(const std::filesystem::path& root, const SnapshotOptions& options);

// The blobs of a snapshot, read from the project again when the daemon asks for them.
class SnapshotBlobs {
 public:
  // `snapshot` was taken of `root` and must outlive this.
  SnapshotBlobs(std::filesystem::path root, const Snapshot& snapshot);

  // Uncompressed bytes of a blob; NotFound when the snapshot has none of that name. The manifest is
  // a blob too: its name is snapshot.root.
  Result<uint64_t> size(const Sha256& name) const;
  // The blob as one frame in parts. Aborted when the file is no longer what the snapshot says: take
  // another snapshot and submit that.
  Status send(const Sha256& name, const BlobPartSink& sink);

 private:
  struct Where {
    std::string_view path;  // into manifest_bytes
    uint64_t size;
  };
  std::filesystem::path root_;
  const Snapshot& snapshot_;
  std::unordered_map<Sha256, Where, Sha256Hash> blobs_;
  BlobEncoder encoder_;
};

}  // namespace dtrain
