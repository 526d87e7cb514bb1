// What the last walk of a project found, so that the next one reads only files that changed.
//
// One file: the manifest of that walk and, beside each entry, what stat said of it. Both walks go
// in the same order, so that looking an entry up is stepping a cursor. A file that is damaged, cut
// or of another version counts as empty: it costs time, never correctness.
//
// A file that was modified in the very tick in which it was hashed could change again without its
// times showing it. Entries that young are written so that they match nothing, and are hashed
// again.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "schema/manifest.h"
#include "schema/result.h"
#include "schema/sha256.h"

namespace dtrain {

// What identifies the content of an entry, beside its size. All zero matches nothing.
struct StatKey {
  uint64_t inode = 0;
  int64_t modified_ns = 0;
  int64_t changed_ns = 0;
  bool operator==(const StatKey&) const = default;
};

StatKey stat_key(const struct stat& st);
// stat_key, or zero for an entry too young to be trusted by a walk that began at `walk_start_ns`.
StatKey stat_key_if_settled(const struct stat& st, int64_t walk_start_ns);
// The clock that file times come from.
int64_t file_clock_ns();

class StatCache {
 public:
  // Empty when there is none or it can't be used.
  static StatCache load(const std::filesystem::path& path);

  // The entry of that path, null when there is none. Paths must be asked for in manifest order. The
  // entry stays valid until the next call.
  const ManifestEntry* find(std::string_view path);
  // Whether the entry found last still describes what stat says.
  bool is_current(const struct stat& st) const;
  const StatKey& key() const { return keys_[index_]; }

  size_t size() const { return keys_.size(); }
  size_t manifest_bytes() const { return manifest_.size(); }
  const Sha256& root() const { return root_; }

  // Best effort, without a sync: whoever can't write it will hash again.
  static Status save(const std::filesystem::path& path, std::string_view manifest,
                     const std::vector<StatKey>& keys, const Sha256& root);

 private:
  bool parse();

  std::string bytes_;
  std::string_view manifest_;  // into bytes_
  std::string_view rest_;      // of the manifest, after the current entry
  ManifestEntry entry_;
  bool at_entry_ = false;
  size_t index_ = SIZE_MAX;  // of the current entry; SIZE_MAX before the first
  std::vector<StatKey> keys_;
  Sha256 root_{};
};

}  // namespace dtrain
