// The manifest: the list of what a snapshot holds, and the bytes whose SHA-256 names it.
//
// Entries lie in the order of a walk that visits each directory's names in byte order, so that a
// directory comes right before what is in it: paths compare as if '/' were the smallest byte. The
// bytes are those of pb::Manifest with every zero field left out; they are written and read here
// without building messages, because a snapshot of 100,000 files is taken in the time of its stats.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "schema/dtrain.pb.h"
#include "schema/result.h"

namespace dtrain {

inline constexpr size_t kManifestEntriesMax = 1'000'000;
inline constexpr size_t kPathBytesMax = 4000;  // below the system's 4096, with room for a prefix
inline constexpr size_t kDepthMax = 256;       // directories; a walk holds one descriptor for each

// One entry, its strings somewhere else.
struct ManifestEntry {
  std::string_view path;
  pb::Entry::Kind kind = pb::Entry::FILE;
  uint32_t mode = 0;
  uint64_t size = 0;
  std::string_view sha256;
  std::string_view target;
  std::string_view encoded;  // set by read_entry: the bytes it was read from
};

void append_entry(std::string& manifest, const ManifestEntry& entry);

// Takes the first entry off `manifest`, which append_entry wrote. false at the end, and on bytes
// that append_entry would not have written: the rest then is not worth reading.
bool read_entry(std::string_view& manifest, ManifestEntry& entry);

std::strong_ordering compare_paths(std::string_view a, std::string_view b);

// Checks that an untrusted manifest can be written below a directory without leaving it: sorted,
// unique, relative paths without "." or "..", parents present and directories, links that stay
// inside or are absolute, sane kinds, modes and sizes.
Status check_manifest(const pb::Manifest& manifest);

// Parses and checks.
Result<pb::Manifest> parse_manifest(std::string_view bytes);

// Whether a relative link at `path` leads out of the tree by "..". An absolute one does not count.
bool leaves_tree(std::string_view path, std::string_view target);

}  // namespace dtrain
