// NVIDIA's driver as programs in an image need it: its libraries are of one version with the kernel's part, so that they
// are the host's and can't come with the image. Pure but for looking at the directory.
#pragma once

#include <filesystem>
#include <vector>

#include "runner/image_root.h"

namespace dtrain::runner {

// Where an image finds them; LD_LIBRARY_PATH begins with it.
inline constexpr const char* kDriverInImage = "/.dtrain/driver";

// Those of `libraries`, where the host has them, and `smi`, which may be empty.
std::vector<HostMount> driver_files(const std::filesystem::path& libraries, const std::filesystem::path& smi);

}  // namespace dtrain::runner
