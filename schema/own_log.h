// daemon.log, runner.log, keepers.log: what our own processes say on standard error, bounded.
#pragma once

#include <sys/types.h>

#include <filesystem>

namespace dtrain {

inline constexpr off_t kOwnLogBytes = off_t{4} << 20;

// For the rest of this process, what is printed to `stderr` goes line by line, behind the time, to `path`; once the file
// has `bytes_max` it becomes `path`.1, the one before it goes, and a new file is begun. Several
// processes may write there, and may die at any point: each finds out where the file is with every
// line. Does nothing when standard error is something else, such as a terminal. Call it once, before
// other threads exist.
void bound_own_log(const std::filesystem::path& path, off_t bytes_max = kOwnLogBytes);

}  // namespace dtrain
