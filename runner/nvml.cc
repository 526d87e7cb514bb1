#include "runner/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <array>

#include "runner/numa.h"

namespace dtrain::runner {
namespace {

// The few declarations of the library's stable C interface that are used here.
using Device = void*;
constexpr int kSuccess = 0;
constexpr int kInsufficientSize = 7;
constexpr int kTemperatureGpu = 0;

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
struct MemoryInfo {
  unsigned long long total, free, used;
};
struct Utilization {
  unsigned gpu, memory;
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long used_memory;
  unsigned gpu_instance, compute_instance;
};

}  // namespace

struct Nvml::Library {
  void* handle = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*device_count)(unsigned*) = nullptr;
  int (*device_by_index)(unsigned, Device*) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*uuid)(Device, char*, unsigned) = nullptr;
  int (*pci_info)(Device, PciInfo*) = nullptr;
  int (*memory_info)(Device, MemoryInfo*) = nullptr;
  int (*utilization)(Device, Utilization*) = nullptr;
  int (*power)(Device, unsigned*) = nullptr;
  int (*power_limit)(Device, unsigned*) = nullptr;
  int (*temperature)(Device, int, unsigned*) = nullptr;
  int (*compute_processes)(Device, unsigned*, ProcessInfo*) = nullptr;

  ~Library() {
    if (handle != nullptr) dlclose(handle);
  }

  template <typename Function>
  bool find(Function& function, const char* symbol) {
    function = reinterpret_cast<Function>(dlsym(handle, symbol));
    return function != nullptr;
  }

  // False: a symbol without which nothing works is missing.
  bool open() {
    handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return false;
    find(error_string, "nvmlErrorString");
    find(uuid, "nvmlDeviceGetUUID");
    find(utilization, "nvmlDeviceGetUtilizationRates");
    find(power, "nvmlDeviceGetPowerUsage");
    find(power_limit, "nvmlDeviceGetEnforcedPowerLimit");
    find(temperature, "nvmlDeviceGetTemperature");
    if (!find(compute_processes, "nvmlDeviceGetComputeRunningProcesses_v3")) {
      find(compute_processes, "nvmlDeviceGetComputeRunningProcesses_v2");
    }
    if (!find(pci_info, "nvmlDeviceGetPciInfo_v3")) find(pci_info, "nvmlDeviceGetPciInfo_v2");
    return find(init, "nvmlInit_v2") && find(shutdown, "nvmlShutdown") &&
           find(device_count, "nvmlDeviceGetCount_v2") &&
           find(device_by_index, "nvmlDeviceGetHandleByIndex_v2") &&
           find(name, "nvmlDeviceGetName") && find(memory_info, "nvmlDeviceGetMemoryInfo");
  }

  GpuFacts facts(int index, Device device) const {
    GpuFacts out;
    out.index = index;
    std::array<char, 128> text{};
    if (name(device, text.data(), text.size()) == kSuccess) out.name = text.data();
    if (uuid != nullptr && uuid(device, text.data(), text.size()) == kSuccess)
      out.uuid = text.data();
    PciInfo pci{};
    if (pci_info != nullptr && pci_info(device, &pci) == kSuccess) out.bus_id = pci.bus_id;
    out.numa_node = numa_node_of(out.bus_id);
    MemoryInfo memory{};
    if (memory_info(device, &memory) == kSuccess) out.memory_bytes = memory.total;
    return out;
  }
};

Nvml::Nvml() : library_(std::make_unique<Library>()) {
  if (!library_->open()) {
    note_ = "no NVIDIA driver";
    library_.reset();
    return;
  }
  if (const int failed = library_->init(); failed != kSuccess) {
    note_ = fmt::format("NVIDIA driver: {}", library_->error_string != nullptr
                                                 ? library_->error_string(failed)
                                                 : "not usable");
    library_.reset();
    return;
  }
  unsigned count = 0;
  library_->device_count(&count);
  for (unsigned index = 0; index < count; ++index) {
    Device device = nullptr;
    if (library_->device_by_index(index, &device) != kSuccess) device = nullptr;
    handles_.push_back(device);
    if (device != nullptr) devices_.push_back(library_->facts(static_cast<int>(index), device));
  }
  if (devices_.empty()) note_ = "the NVIDIA driver shows no device";
}

Nvml::~Nvml() {
  if (library_) library_->shutdown();
}

std::string Nvml::libraries() const {
  link_map* map = nullptr;
  if (!library_ || devices_.empty() || ::dlinfo(library_->handle, RTLD_DI_LINKMAP, &map) != 0) return "";
  const std::string path = map->l_name;
  return path.substr(0, path.rfind('/'));
}

GpuLoad Nvml::load(int index) const {
  GpuLoad out;
  if (index < 0 || static_cast<size_t>(index) >= handles_.size()) return out;
  const Device device = handles_[static_cast<size_t>(index)];
  if (device == nullptr) return out;
  Utilization utilization{};
  if (library_->utilization != nullptr && library_->utilization(device, &utilization) == kSuccess) {
    out.utilization_percent = utilization.gpu;
  }
  MemoryInfo memory{};
  if (library_->memory_info(device, &memory) == kSuccess) out.memory_used_bytes = memory.used;
  unsigned value = 0;
  if (library_->power != nullptr && library_->power(device, &value) == kSuccess) {
    out.power_watts = value / 1000.0;
  }
  if (library_->power_limit != nullptr && library_->power_limit(device, &value) == kSuccess) {
    out.power_limit_watts = value / 1000.0;
  }
  if (library_->temperature != nullptr &&
      library_->temperature(device, kTemperatureGpu, &value) == kSuccess) {
    out.temperature_c = value;
  }
  return out;
}

std::vector<GpuProcess> Nvml::processes(int index) const {
  std::vector<GpuProcess> out;
  if (index < 0 || static_cast<size_t>(index) >= handles_.size()) return out;
  const Device device = handles_[static_cast<size_t>(index)];
  if (device == nullptr || library_->compute_processes == nullptr) return out;
  std::vector<ProcessInfo> rows(64);
  auto count = static_cast<unsigned>(rows.size());
  int result = library_->compute_processes(device, &count, rows.data());
  if (result == kInsufficientSize) {
    rows.resize(count + 16);
    count = static_cast<unsigned>(rows.size());
    result = library_->compute_processes(device, &count, rows.data());
  }
  if (result != kSuccess) return out;
  for (unsigned i = 0; i < count; ++i) {
    // A driver that can't tell (a virtual machine) says all ones.
    const uint64_t memory = rows[i].used_memory == ~0ULL ? 0 : rows[i].used_memory;
    out.push_back({static_cast<int>(rows[i].pid), memory});
  }
  return out;
}

}  // namespace dtrain::runner
