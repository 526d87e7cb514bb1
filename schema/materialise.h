// Writes the tree of a manifest to disk: exactly it, below one directory, whatever the manifest
// says.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "schema/dtrain.pb.h"
#include "schema/fd.h"
#include "schema/result.h"
#include "schema/sha256.h"

namespace dtrain {

// Makes the entries of one checked manifest below a directory that it creates. Every step goes
// through descriptors of directories opened without following links, and every file is created
// anew. Never: removes anything; who began a tree and can't finish it calls remove_tree.
class TreeWriter {
 public:
  // Creates `target`, which must not exist, with all directories and symlinks of the manifest. The
  // manifest must outlive the writer.
  static Result<TreeWriter> begin(const pb::Manifest& manifest,
                                  const std::filesystem::path& target);

  // A new empty file with the entry's mode, open for writing.
  Result<Fd> create_file(const pb::Entry& entry);
  // The file as one more name of `existing` (relative to `existing_dir`), which has the entry's
  // bytes and mode. False when the system can't: another file system, too many names.
  Result<bool> link_file(const pb::Entry& entry, int existing_dir, const char* existing);
  // The tree's own directory, to find entries that were created already.
  int root() const { return root_.get(); }
  // Gives the directories their modes. Nothing may be created after it.
  Status finish();

 private:
  TreeWriter(const pb::Manifest& manifest, Fd root)
      : manifest_(&manifest), root_(std::move(root)) {}
  // The descriptor of an entry's parent. Neighbours mostly share theirs, so the last one is kept.
  Result<int> parent_of(std::string_view path);

  const pb::Manifest* manifest_;
  Fd root_;
  std::string parent_path_;
  Fd parent_;
};

// Writes the tree of a checked manifest into `target` (which must not exist). `blob` writes the
// bytes of one file's blob into the open descriptor. On error `target` is removed.
Status materialise(const pb::Manifest& manifest, const std::filesystem::path& target,
                   const std::function<Status(const Sha256&, uint64_t size, int fd)>& blob);

// Removes a directory with everything in it, directories without write permission too. Follows no
// link, and takes nothing of what is mounted in it: that is an error. What is not there is none.
Status remove_tree(const std::filesystem::path& path);

// Whether `name` in `directory` is where something is mounted, a directory of the same file system too.
bool is_mount_point(int directory, const char* name);

}  // namespace dtrain
