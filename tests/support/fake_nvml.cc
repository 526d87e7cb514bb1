// libnvidia-ml.so.1 for machines without a GPU: FAKE_GPUS=<count>:<name for uuids> in the environment says
// what there is. Only what runner/nvml.cc asks for, with figures that a test can recognise.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

constexpr int kSuccess = 0;
constexpr int kNotFound = 6;

std::string asked() {
  const char* text = std::getenv("FAKE_GPUS");
  return text == nullptr ? "0:none" : text;
}
unsigned count() { return static_cast<unsigned>(std::atoi(asked().c_str())); }
std::string uuid_base() { return asked().substr(asked().find(':') + 1); }

// A device's handle is its index plus one.
unsigned index_of(const void* device) {
  return static_cast<unsigned>(reinterpret_cast<std::size_t>(device)) - 1;
}

}  // namespace

extern "C" {

struct Memory {
  unsigned long long total, free, used;
};
struct Utilization {
  unsigned gpu, memory;
};
struct Pci {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char bus_id[32];
};

int nvmlInit_v2() { return kSuccess; }
int nvmlShutdown() { return kSuccess; }
const char* nvmlErrorString(int) { return "not found"; }
int nvmlDeviceGetCount_v2(unsigned* found) {
  *found = count();
  return kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index >= count()) return kNotFound;
  *device = reinterpret_cast<void*>(static_cast<std::size_t>(index) + 1);
  return kSuccess;
}
int nvmlDeviceGetName(void*, char* name, unsigned size) {
  std::snprintf(name, size, "Fake GPU");
  return kSuccess;
}
int nvmlDeviceGetUUID(void* device, char* uuid, unsigned size) {
  std::snprintf(uuid, size, "GPU-%s-%u", uuid_base().c_str(), index_of(device));
  return kSuccess;
}
int nvmlDeviceGetPciInfo_v3(void* device, Pci* pci) {
  std::memset(pci, 0, sizeof *pci);
  std::snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", index_of(device) + 1);
  return kSuccess;
}
int nvmlDeviceGetMemoryInfo(void*, Memory* memory) {
  *memory = {16ULL << 30, 12ULL << 30, 4ULL << 30};
  return kSuccess;
}
int nvmlDeviceGetUtilizationRates(void* device, Utilization* rates) {
  *rates = {42 + index_of(device), 25};
  return kSuccess;
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  *milliwatts = 123'000;
  return kSuccess;
}
int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned* milliwatts) {
  *milliwatts = 300'000;
  return kSuccess;
}
int nvmlDeviceGetTemperature(void*, int, unsigned* celsius) {
  *celsius = 61;
  return kSuccess;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* found, void*) {
  *found = 0;
  return kSuccess;
}

}  // extern "C"
