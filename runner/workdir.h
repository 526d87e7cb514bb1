// Work directories: one read-only tree per snapshot on this host, and for each replica its own view
// of it that it may write to.
//
//   trees/<root hex>             the files of a snapshot; complete from the moment it has this name
//   trees/<root hex>.manifest    what they are, and under which boot they were written
//   <place>/project              a view: where a replica runs
//   <place>/{upper,work}         what it wrote, when the view is an overlay
//   <place>/view                 what kind of view it is, for whoever has only the path
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

// ---- trees

class TreeBuilder;

// Owner: the agent. Thread: loop.
// Promises: a tree it names is whole; files of unchanged content are shared between trees, not
// fetched or stored again.
// Never: changes a tree. Views are made so that nothing a replica does there reaches it.
class Trees {
 public:
  // Creates `folder` if need be and removes what an earlier runner began and did not finish.
  static Result<std::unique_ptr<Trees>> open(const std::filesystem::path& folder);

  // The finished tree, or nothing when it must be built first. A tree that was written under an
  // earlier boot is read once again: what had not reached the disk makes it be built anew.
  std::optional<std::filesystem::path> find(const Sha256& root);
  // Several builders of one root may run; the first to finish wins and the others take its tree.
  Result<std::unique_ptr<TreeBuilder>> build(const Sha256& root);
  // Removes the trees that were not used for longest, but none of `in_use`, until the files of the
  // rest are at most `bytes_max`.
  Status trim(uint64_t bytes_max, const std::set<Sha256>& in_use);

 private:
  friend class TreeBuilder;
  explicit Trees(std::filesystem::path folder) : folder_(std::move(folder)) {}
  std::filesystem::path tree_path(const Sha256& root) const;
  std::filesystem::path manifest_path(const Sha256& root) const;

  std::filesystem::path folder_;
  std::set<Sha256> checked_;  // found whole since this runner started
};

// A tree under construction. Blobs come in one after the other as they arrive from the daemon.
// Owner: the agent. Thread: loop. Destroyed before finish() returned ok, nothing of it stays.
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

// ---- views

enum class WorkdirKind { Overlay, Reflink, Copy };
std::string_view to_string(WorkdirKind kind);  // "overlay"

struct Workdir {
  std::filesystem::path cwd;  // <place>/project
  WorkdirKind kind = WorkdirKind::Copy;
};

// A writable view of `tree` in `place`, which is created: an overlay where the system permits it,
// else a copy that shares blocks, else a copy. `only` (or DTRAIN_WORKDIR=overlay|reflink|copy in
// the environment) asks for that kind, and then there is no falling back.
Result<Workdir> make_view(const std::filesystem::path& tree, const std::filesystem::path& place,
                          std::optional<WorkdirKind> only = std::nullopt);

// What a replica wrote outside OUTPUT_DIR, in its view: "1.2 GB in ckpt/ and log.txt". Empty when
// nothing. Works before and after unmount_view.
Result<std::string> left_behind(const std::filesystem::path& place);

// Both need no more than the path, so that a later runner can call them, and are no-ops when there
// is nothing (left) to do. unmount_view keeps what was written, in <place>/upper or
// <place>/project.
Status unmount_view(const std::filesystem::path& place);
Status release_view(const std::filesystem::path& place);

}  // namespace dtrain::runner
