// A hint to the file system about directories whose entries come and go all the time.
#pragma once

#include <filesystem>

namespace dtrain {

// Asks for the directories made in `directory` to be put far from each other, where it knows that (the
// flag T of chattr(1), ext4). Else they share one neighbourhood, and there ext4 passes over each inode
// that was deleted within five seconds before it gives out a new one: after a thousand short experiments
// a mkdir takes half a millisecond. Elsewhere nothing happens.
void spread_subdirectories(const std::filesystem::path& directory);

}  // namespace dtrain
