// Whether a project is so large that a person should hear of it before it travels. Pure.
#pragma once

#include <optional>
#include <string>

#include "schema/snapshot.h"

namespace dtrain::cli {

// RiseML's thresholds for a warning.
inline constexpr uint64_t kWarnBytes = uint64_t{50} << 20;
inline constexpr uint64_t kWarnFiles = 1'000;
// From here on it is more likely a forgotten data set than a program: a person must agree.
inline constexpr uint64_t kAskBytes = uint64_t{1} << 30;
inline constexpr uint64_t kAskFiles = 20'000;

enum class SyncSize { Fine, Warn, Ask };
SyncSize size_of_sync(const Snapshot& snapshot);

// "data/ is 38.0 GB of 38.1 GB"; "12,345 files, 61.2 MB" when no part of it stands out.
std::string what_is_large(const Snapshot& snapshot);

}  // namespace dtrain::cli
