// What this host has to give: processors, memory, GPUs; as far as this process may use them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runner/nvml.h"
#include "schema/dtrain.pb.h"

namespace dtrain::runner {

// Processors of the affinity mask, less when a cgroup's quota is smaller; fractions are possible.
double usable_cpus();
// The machine's memory, less when a cgroup caps it.
uint64_t usable_memory_bytes();
std::string host_name();

// Which devices a CUDA_VISIBLE_DEVICES of the runner itself leaves: indices or uuids, ended by the
// first that names no device, as CUDA does; one that is named twice is there once. nullopt: no mask, all of them.
std::vector<GpuFacts> visible_gpus(const std::vector<GpuFacts>& all,
                                   const std::optional<std::string>& mask);

// Who uses a device that is not ours: "user, pid 4242, 31.0 GB"; empty: nobody. `is_ours` is asked
// for each pid.
std::string foreign_use(const std::vector<GpuProcess>& processes,
                        const std::function<bool(int pid)>& is_ours);

// Whose process it is: a name, "user 1000", or nothing when it can't be seen from here.
std::string user_of(int pid);

// True for a process that carries some launch's DTRAIN_KEY, as far as this user may look.
bool carries_launch_key(int pid);

struct InventoryOptions {
  std::string name;
  std::string address;
  std::optional<double> cpus;
  std::optional<uint64_t> memory_bytes;
  uint32_t port_first = 20'000;
  uint32_t port_last = 29'999;
  std::string cgroup;
  std::vector<std::string> uncapped;
  std::vector<std::string> labels;
};
// As it is now; GPUs in use by others are marked busy.
pb::Inventory take_inventory(const InventoryOptions& options, const Nvml& nvml);

}  // namespace dtrain::runner
