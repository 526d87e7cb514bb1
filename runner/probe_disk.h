// How fast a directory takes what is written, and how much room it has.
#pragma once

#include <filesystem>
#include <string>

#include "schema/hosts_test.h"

namespace dtrain::runner {

// Writes some tens of megabytes, or for about a second, then syncs them; of a disk that is nearly full less. The file is
// gone afterwards; it is called by `who`, for others may write there as well, and so that it is not carried home. Blocks
// for as long as the disk does.
ProbeDisk probe_disk(const std::filesystem::path& directory, const std::string& who, bool is_output);

}  // namespace dtrain::runner
