// What lies beside each tree of a host: which boot wrote it, and its manifest.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "schema/result.h"
#include "schema/sha256.h"

namespace dtrain::runner {

inline constexpr std::string_view kTreeNoteSuffix = ".manifest";
// Names in the folder of trees that begin so are nobody's once their runner is gone.
inline constexpr std::string_view kUnfinishedPrefix = ".unfinished-";

struct TreeNote {
  std::string boot;  // the kernel's id of the boot under which it was written or last read whole
  std::string manifest;  // its bytes
};

Result<TreeNote> read_note(const std::filesystem::path& path);
// Of a tree that is whole under this boot.
Status write_note(const std::filesystem::path& path, std::string_view manifest);

struct KnownTree {
  std::filesystem::path path;
  std::filesystem::path note;
  Sha256 root;
  int64_t used_ns;
};

// Every finished tree of a folder, the one used last first.
std::vector<KnownTree> known_trees(const std::filesystem::path& folder);

}  // namespace dtrain::runner
