// The read-only trees of this host: one per snapshot, shared by every replica that runs on it.
//
//   trees/<root hex>             the files of a snapshot; complete from the moment it has this name
//   trees/<root hex>.manifest    under which boot they were written, and what they are
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "schema/materialise.h"
#include "schema/result.h"
#include "schema/sha256.h"

namespace dtrain::runner {

class TreeBuilder;

// Owner: LaunchSite. Thread: the one that prepares.
// Promises: a tree it names is whole; files of unchanged content are shared between trees, not
// fetched or stored again.
// Never: changes a tree. Views are made so that nothing a replica does there reaches it.
class Trees {
 public:
  // Creates `folder` if need be and removes what an earlier runner began and did not finish.
  static Result<std::unique_ptr<Trees>> open(const std::filesystem::path& folder);

  // The finished tree, or nothing when it must be built first. A tree that was written under an
  // earlier boot is read once again: what had not reached the disk makes it be built anew.
  // ResourceExhausted: nobody can say now.
  Result<std::optional<std::filesystem::path>> find(const Sha256& root);
  // Several builders of one root may run; the first to finish wins and the others take its tree.
  Result<std::unique_ptr<TreeBuilder>> build(const Sha256& root);
  // A tree was built since trim() was last called: there may be something to remove.
  bool has_grown() const { return grown_; }
  // What trim(0, in_use) would give back: files that trees in use have, too, are not counted.
  uint64_t unused_bytes(const std::set<Sha256>& in_use) const;
  // Removes the trees that were not used for longest, but none of `in_use`, until the files of the
  // rest are at most `bytes_max`.
  Status trim(uint64_t bytes_max, const std::set<Sha256>& in_use);

 private:
  friend class TreeBuilder;
  explicit Trees(std::filesystem::path folder) : folder_(std::move(folder)) {}
  std::filesystem::path tree_path(const Sha256& root) const;
  std::filesystem::path note_path(const Sha256& root) const;
  std::filesystem::path unfinished_path();  // a new one each time
  Result<bool> is_usable(const Sha256& root);
  Status remove(const Sha256& root);

  std::filesystem::path folder_;
  uint64_t unfinished_ = 0;
  bool grown_ = true;         // an earlier runner may have built some
  std::set<Sha256> checked_;  // found whole since this runner started
};

// A tree under construction. Blobs come in one after the other as they arrive from the daemon.
// Owner: whoever builds. Thread: the one that prepares. Destroyed before finish() returned ok, nothing of it
// stays.
class TreeBuilder {
 public:
  ~TreeBuilder();
  TreeBuilder(const TreeBuilder&) = delete;
  TreeBuilder& operator=(const TreeBuilder&) = delete;

  // What is needed next, to be fetched in this order: the manifest, and once that was added, the
  // blobs no other tree of this host has. Empty: finish() may be called.
  std::vector<Sha256> missing() const;
  // A part of a blob, as BlobPart carries it. DataLoss when it is not what its name says.
  Status add(const Sha256& name, uint64_t size_bytes, std::string_view part, bool last);
  // The tree's path.
  Result<std::filesystem::path> finish();

 private:
  friend class Trees;
  struct State;
  explicit TreeBuilder(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// find(), else build() with `fetch` called for each round of missing() until nothing is: it adds
// every blob of the list to the builder.
Result<std::filesystem::path> ensure_tree(
    Trees& trees, const Sha256& root,
    const std::function<Status(const std::vector<Sha256>& missing, TreeBuilder& builder)>& fetch);

}  // namespace dtrain::runner
