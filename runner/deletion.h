// Deleting what programs made, whatever rights its directories have.
#pragma once

#include <atomic>
#include <filesystem>

namespace dtrain::runner {

// What can't be deleted stays, and is said on stderr. False: it was told to stop, and has not ended. No link is followed.
bool delete_deeply(const std::filesystem::path& path, const std::atomic<bool>& stop);

}  // namespace dtrain::runner
