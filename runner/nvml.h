// NVIDIA's management library, loaded at run time: a host without it is a host without GPUs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace dtrain::runner {

struct GpuProcess {
  int pid = 0;
  uint64_t memory_bytes = 0;
};

struct GpuFacts {
  int index = 0;  // in PCI bus order, as CUDA_DEVICE_ORDER=PCI_BUS_ID counts
  std::string name;
  std::string uuid;
  std::string bus_id;
  int numa_node = -1;   // numa.h
  uint64_t memory_bytes = 0;
};

struct GpuLoad {
  double utilization_percent = 0;
  uint64_t memory_used_bytes = 0;
  double power_watts = 0;
  double power_limit_watts = 0;
  double temperature_c = 0;
};

// Owner: main. Thread: loop; a call takes a millisecond or so.
// Never: fails loudly; what a device doesn't tell is 0 or empty.
class Nvml {
 public:
  Nvml();
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Why there are no devices: "no NVIDIA driver"; empty when there are.
  const std::string& note() const { return note_; }
  const std::vector<GpuFacts>& devices() const { return devices_; }
  // The directory of the driver's libraries; empty where there are no devices.
  std::string libraries() const;
  GpuLoad load(int index) const;
  std::vector<GpuProcess> processes(int index) const;

 private:
  struct Library;
  std::unique_ptr<Library> library_;
  std::vector<void*> handles_;  // by index; null: a device that can't be reached
  std::vector<GpuFacts> devices_;
  std::string note_;
};

}  // namespace dtrain::runner
