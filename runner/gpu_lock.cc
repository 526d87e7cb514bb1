#include "runner/gpu_lock.h"

#include <fmt/format.h>

#include "runner/inventory.h"
#include "schema/lock_file.h"

namespace dtrain::runner {

namespace fs = std::filesystem;

fs::path gpu_lock(const std::string& uuid, int index) {
  std::error_code ignored;
  const fs::path shared = "/run/lock";
  return (fs::is_directory(shared, ignored) ? shared : fs::path("/tmp")) /
         fmt::format("dtrain-gpu-{}", uuid.empty() ? std::to_string(index) : uuid);
}

void mark_locked_gpus(pb::Inventory& inventory, const std::function<bool(int pid)>& is_ours) {
  for (pb::GpuInfo& gpu : *inventory.mutable_gpus()) {
    const fs::path path = gpu_lock(gpu.uuid(), static_cast<int>(gpu.index()));
    if (!gpu.busy().empty() || !is_held(path)) continue;
    const auto pid = lock_holder(path);
    if (pid && is_ours(*pid)) continue;
    gpu.set_busy(pid ? fmt::format("another dtrain of {}, pid {}", user_of(*pid), *pid)
                     : "another dtrain");
  }
}

}  // namespace dtrain::runner
