// Whether a project is so large that a person should hear of it before it travels. Pure.
#pragma once

#include <string>

#include "schema/config.h"
#include "schema/snapshot.h"

namespace dtrain::cli {

// RiseML's threshold for a warning; the one of bytes is sync.warn in config.yml.
inline constexpr uint64_t kWarnFiles = 1'000;
// From here on, or from sync.ask on, it is more likely a forgotten data set than a program: a
// person must agree.
inline constexpr uint64_t kAskFiles = 20'000;

enum class SyncSize { Fine, Warn, Ask };
SyncSize size_of_sync(const ProjectSize& project, const Config& config);

// "data/ is 38.0 GB of 38.1 GB"; "the project is 61.2 MB in 12345 files" when no part of it stands
// out. Behind it the limit from which on a person is asked, where that is passed.
std::string what_is_large(const ProjectSize& project, const Config& config);

}  // namespace dtrain::cli
