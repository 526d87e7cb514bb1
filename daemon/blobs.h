// The daemon's blobs: the content of every submitted file and manifest, by SHA-256.
//
//   blobs/<number>.pack    zstd frames, one after the other, then the pack's own table of contents
//
// The blobs of one submission lie in one pack, made durable by one sync of its bytes and one of the
// folder. A pack gets its name last: what a crash leaves under a temporary one was never acknowledged
// and is removed at the next start. The tables are read at start; blobs are not. What no experiment
// needs any more is found and removed by a BlobSweep (daemon/blob_sweep.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "schema/blob.h"
#include "schema/checksum.h"
#include "schema/fd.h"
#include "schema/result.h"
#include "schema/sha256.h"

namespace dtrain::daemon {

class BlobSweep;
class PackWriter;

inline constexpr uint64_t kManifestBytesMax = uint64_t{256} << 20;

// Owner: daemon main. Thread: loop.
// Promises: has() only what is durable; a blob is what its name says, or is refused with DataLoss: by read(), or by who
// streams it out and compares the checksum.
// Never: decompresses what it hands out, or holds more than one part of a blob in memory.
class Blobs {
 public:
  static Result<std::unique_ptr<Blobs>> open(const std::filesystem::path& folder);
  Blobs(const Blobs&) = delete;
  Blobs& operator=(const Blobs&) = delete;

  bool has(const Sha256& name) const { return index_.contains(name); }
  // Those of `names` that are not here, each once, in the order given. What is here stays for whoever
  // asked while a PackWriter of his is open.
  std::vector<Sha256> missing(const std::vector<Sha256>& names);
  // The manifest of this name is here, and all files it lists were once seen to be, since this daemon
  // started. It stays as above.
  bool is_whole(const Sha256& root);
  void set_whole(const Sha256& root) { whole_.insert(root); }

  // Where a blob's frame lies, to stream it out: [offset, offset + stored_bytes) of fd.
  struct Stored {
    Fd fd;
    uint64_t offset = 0;
    uint64_t stored_bytes = 0;
    uint64_t size_bytes = 0;  // uncompressed
    uint64_t checksum = 0;    // of the frame (schema/checksum.h)
  };
  Result<Stored> find(const Sha256& name) const;
  // What was found damaged: it is missing until it is sent again. Tells so.
  Error forget(const Sha256& name);
  // The whole blob, uncompressed, verified; for manifests. ResourceExhausted past `bytes_max`.
  Result<std::string> read(const Sha256& name, uint64_t bytes_max) const;

  // A place for the blobs of one submission. Several may be open at once.
  Result<std::unique_ptr<PackWriter>> begin();

  // What was found damaged at open(), a line each; those blobs are missing() until sent again.
  const std::vector<std::string>& notices() const { return notices_; }
  size_t count() const { return index_.size(); }
  uint64_t stored_bytes() const { return stored_bytes_; }

 private:
  friend class BlobSweep;
  friend class PackWriter;
  struct Location {
    uint64_t offset;
    uint64_t stored_bytes;
    uint64_t size_bytes;
    uint64_t pack;
    uint64_t checksum;
  };
  struct TableRow {
    Sha256 name;
    Location location;
  };

  explicit Blobs(std::filesystem::path folder) : folder_(std::move(folder)) {}
  std::filesystem::path pack_path(uint64_t pack) const;
  Status load_pack(uint64_t pack);
  void enter(const TableRow& row);

  std::filesystem::path folder_;
  Fd folder_fd_;
  uint64_t next_pack_ = 1;
  uint64_t stored_bytes_ = 0;
  size_t writers_ = 0;               // open submissions
  BlobSweep* marking_ = nullptr;     // told what submissions rely on
  std::unordered_map<Sha256, Location, Sha256Hash> index_;
  std::unordered_set<Sha256, Sha256Hash> whole_;
  std::set<uint64_t> packs_;         // with a whole table
  std::vector<std::string> notices_;
};

// The blobs of one submission on their way in.
// Owner: the submission. Thread: loop. Must not outlive its Blobs.
// Promises: abandoned (destroyed before publish()), nothing of it stays.
class PackWriter {
 public:
  ~PackWriter();
  PackWriter(const PackWriter&) = delete;
  PackWriter& operator=(const PackWriter&) = delete;

  // The next part of a blob's frame; parts of two blobs never mix. DataLoss when the frame is not
  // the blob: the pack is then only good for being abandoned.
  Status add(const Sha256& name, uint64_t size_bytes, std::string_view part, bool last);
  // Added whole by this writer: may be asked for before it is stored. A manifest is needed that
  // early.
  bool has(const Sha256& name) const { return rows_by_name_.contains(name); }
  Result<std::string> read(const Sha256& name, uint64_t bytes_max);

  // Makes all of it durable, for nobody to see yet. With nothing added it is free.
  Status store();
  // Makes what is stored visible in Blobs.
  void publish();
  // Both.
  Status commit();

 private:
  friend class BlobSweep;
  friend class Blobs;
  PackWriter(Blobs& blobs, uint64_t pack);
  Status add_part(const Sha256& name, uint64_t size_bytes, std::string_view part, bool last);
  Status flush();
  Error not_kept(int error) const;

  Blobs& blobs_;
  const uint64_t pack_;
  const std::filesystem::path temporary_;
  Fd fd_;                       // from the first flush on
  std::string buffer_;          // small parts wait here, to be written together
  uint64_t written_bytes_ = 0;  // in the file
  uint64_t started_bytes_ = 0;  // of them, on their way to the disk
  std::vector<Blobs::TableRow> rows_;
  std::unordered_map<Sha256, size_t, Sha256Hash> rows_by_name_;
  bool in_blob_ = false;
  bool spoiled_ = false;
  bool stored_ = false;         // under its own name
  Blobs::TableRow current_{};
  Checksum checksum_;           // of current_, so far
  BlobDecoder decoder_;
};

}  // namespace dtrain::daemon
