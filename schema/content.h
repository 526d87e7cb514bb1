// The second half of take_snapshot: reads what the walk found and the stat cache did not know.
#pragma once

#include <cstdint>
#include <filesystem>

#include "schema/result.h"
#include "schema/walk.h"

namespace dtrain {

// Hashes walk.unread and puts the entries where they belong in walk.manifest and walk.keys. A file
// that is gone by now is no part of the snapshot. Returns how many files were read.
Result<uint64_t> read_content(const std::filesystem::path& root, const SnapshotOptions& options,
                              Walk& walk);

}  // namespace dtrain
