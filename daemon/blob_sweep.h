// Removes the blobs that no experiment needs any more, a little at a time, while submissions go on.
//
// 1. Mark: the manifests of all stored experiments are read; what they name is needed, and so is
//    whatever a submission relies on meanwhile. A manifest that is damaged names nothing any more.
// 2. Cut: the rest is forgotten, at once: a submission that wants such a blob has to send it again.
// 3. Clear: packs without anything needed are deleted; those with little are written anew.
//
// A crash in between loses nothing: what was forgotten is back at the next start, as garbage; a pack
// that was written anew lies there twice.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <unordered_set>
#include <utility>
#include <vector>

#include "daemon/blobs.h"

namespace dtrain::daemon {

// Owner: who prunes. Thread: loop. Must not outlive its Blobs; one at a time.
class BlobSweep {
 public:
  // A submission that began before the sweep may rely on what nobody named yet.
  static bool may_begin(const Blobs& blobs) {
    return blobs.writers_ == 0 && blobs.marking_ == nullptr;
  }
  // `roots`: the manifests of all stored experiments. `dry`: ends before the cut.
  BlobSweep(Blobs& blobs, std::vector<Sha256> roots, bool dry);
  ~BlobSweep();
  BlobSweep(const BlobSweep&) = delete;
  BlobSweep& operator=(const BlobSweep&) = delete;

  // Goes on for about that long, by one small step at least; true: there is more to do. On error nothing needed is gone.
  Result<bool> step(std::chrono::microseconds time);
  // Of blobs that are not needed, as they lie in the packs. Known once step() said false.
  uint64_t unneeded_bytes() const { return unneeded_bytes_; }

  // For Blobs.
  void keep(const std::vector<Sha256>& names) { needed_.insert(names.begin(), names.end()); }
  void keep_tree(const Sha256& root) { roots_.push_back(root); }

 private:
  enum class Phase { Mark, Clear, Done };

  Status mark(const Sha256& root);
  Status cut();
  Status clear_some();
  Status copy_some();
  Status leave_pack(const Error& why);
  Status drop_pack();

  Blobs& blobs_;
  const bool dry_;
  Phase phase_ = Phase::Mark;
  std::vector<Sha256> roots_;   // to be read
  std::unordered_set<Sha256, Sha256Hash> read_;
  std::unordered_set<Sha256, Sha256Hash> needed_;
  uint64_t unneeded_bytes_ = 0;

  // A pack that goes, and the blobs in it that stay.
  struct Pack {
    uint64_t number = 0;
    std::vector<std::pair<Sha256, Blobs::Location>> stay;
  };
  std::vector<Pack> packs_;             // still to be cleared; the last one is being
  std::unique_ptr<PackWriter> writer_;  // of what stays of the last one
  Fd from_;
  size_t next_ = 0;                     // in its `stay`
  uint64_t copied_bytes_ = 0;           // of that blob
};

}  // namespace dtrain::daemon
