#include "runner/driver_files.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace dtrain::runner {
namespace fs = std::filesystem;
namespace {

// What computing and watching need, of what the driver installs.
constexpr std::array<std::string_view, 12> kLibraries = {
    "libcuda.so",           "libcudadebugger.so",         "libnvidia-allocator.so", "libnvidia-cfg.so",
    "libnvidia-gpucomp.so", "libnvidia-ml.so",            "libnvidia-nvvm.so",      "libnvidia-opencl.so",
    "libnvidia-pkcs11.so",  "libnvidia-pkcs11-openssl3.so", "libnvidia-ptxjitcompiler.so", "libnvidia-compiler.so"};

}  // namespace

std::vector<HostMount> driver_files(const fs::path& libraries, const fs::path& smi) {
  std::vector<HostMount> shown;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(libraries, error)) {
    const std::string name = entry.path().filename().string();
    const bool is_wanted = std::ranges::any_of(kLibraries, [&](std::string_view library) {
      return name.starts_with(library) && (name.size() == library.size() || name[library.size()] == '.');
    });
    if (is_wanted && entry.is_regular_file(error)) {
      shown.push_back({entry.path().string(), fmt::format("{}/{}", kDriverInImage, name), true});
    }
  }
  std::ranges::sort(shown, {}, &HostMount::path);
  if (!smi.empty()) shown.push_back({smi.string(), "/usr/local/bin/nvidia-smi", true});
  return shown;
}

}  // namespace dtrain::runner
