// The calls of the runtime but those of streams: devices, memory that is checked, and errors, which may be asked for.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "cuda_runtime.h"
#include "devices.h"
#include "emulator.h"

namespace emulated {

namespace {

struct Block {
  size_t size;
  int device;
};
struct Allocations {
  std::mutex mutex;
  std::map<uintptr_t, Block> blocks;  // guarded; of devices
  std::map<uintptr_t, Block> pinned;  // guarded; of the host, which devices copy from and to by themselves
  size_t bytes = 0;                   // guarded; of devices
  std::atomic<size_t> limit = SIZE_MAX;

  void pin(void* memory, Block block) {
    const std::lock_guard lock(mutex);
    pinned[reinterpret_cast<uintptr_t>(memory)] = block;
  }
  bool holds(const void* memory, size_t size) { return is_within(blocks, memory, size); }
  bool has_pinned(const void* memory, size_t size) { return is_within(pinned, memory, size); }

 private:
  bool is_within(const std::map<uintptr_t, Block>& all, const void* memory, size_t size) {
    const std::lock_guard lock(mutex);
    const auto address = reinterpret_cast<uintptr_t>(memory);
    auto after = all.upper_bound(address);
    if (after == all.begin()) return false;
    --after;
    return address + size <= after->first + after->second.size;
  }
};
Allocations& allocations() {
  static Allocations all;
  return all;
}

std::vector<int> devices{0};  // those of the machine that this process sees
std::atomic<bool> devices_are_one = false;
thread_local cudaError_t last_error = cudaSuccess;
thread_local int chosen_device = 0;

}  // namespace

cudaError_t failed(cudaError_t error) {
  last_error = error;
  return error;
}
int current_device() { return chosen_device; }

namespace {
// 0: none is to fail.
std::atomic<int64_t> calls_left = 0;
std::atomic<bool> has_failed = false, goes_on_failing = false, counts_clears = false;
std::atomic<cudaError_t> failing_with = cudaSuccess;

bool is_broken() { return has_failed && goes_on_failing; }
bool fails(bool is_clear = false) {
  if (is_broken()) return true;
  if (counts_clears != is_clear) return false;
  if (calls_left <= 0 || --calls_left != 0) return false;
  has_failed = true;
  return true;
}
}  // namespace

cudaError_t call(Stream* of_kernel) {
  if (fails()) return failed(failing_with);
  if (of_kernel != nullptr && device_of(of_kernel) != chosen_device) return failed(cudaErrorInvalidResourceHandle);
  return cudaSuccess;
}
cudaError_t repeated_call() { return is_broken() ? failed(failing_with) : cudaSuccess; }
void fail_call(int64_t n, cudaError_t error, Failing failing) {
  stop_failing();
  failing_with = error;
  goes_on_failing = failing == Failing::FromThenOn;
  counts_clears = failing == Failing::OnceOfClears;
  calls_left = n;
}
bool stop_failing() {
  calls_left = 0;
  return has_failed.exchange(false);
}

namespace {
constexpr size_t kMostDevices = 64;
std::array<std::atomic<int64_t>, kMostDevices> plan_counts;
}  // namespace

int64_t plans(int device) { return plan_counts[static_cast<size_t>(device)]; }
void count_plan() { ++plan_counts[static_cast<size_t>(chosen_device)]; }

void set_devices(const std::vector<int>& of_machine) { devices = of_machine; }
void set_device_count(int count) {
  devices.resize(static_cast<size_t>(count));
  std::iota(devices.begin(), devices.end(), 0);
}
void make_devices_one(bool one) { devices_are_one = one; }
int64_t device_bytes() {
  const std::lock_guard lock(allocations().mutex);
  return static_cast<int64_t>(allocations().bytes);
}
void fail_allocations_above(size_t bytes) { allocations().limit = bytes; }

}  // namespace emulated

using namespace emulated;

namespace {
constexpr size_t kMemoryBytes = size_t{1} << 30;
bool has_device(int device) { return device >= 0 && device < static_cast<int>(devices.size()); }
}  // namespace

cudaError_t cudaGetDeviceCount(int* count) {
  if (const cudaError_t error = call(); error != cudaSuccess) return error;
  *count = static_cast<int>(devices.size());
  return *count == 0 ? failed(cudaErrorNoDevice) : cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (const cudaError_t error = call(); error != cudaSuccess) return error;
  if (!has_device(device)) return failed(cudaErrorInvalidDevice);
  chosen_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (const cudaError_t error = call(); error != cudaSuccess) return error;
  if (!has_device(device)) return failed(cudaErrorInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "Emulated GPU");
  properties->uuid.bytes[0] = static_cast<char>(devices_are_one ? 1 : devices[static_cast<size_t>(device)] + 1);
  properties->totalGlobalMem = kMemoryBytes;
  properties->multiProcessorCount = 2;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  if (const cudaError_t error = call(); error != cudaSuccess) return error;
  if (breaks_capture()) return failed(cudaErrorStreamCaptureUnsupported);
  if (bytes > allocations().limit) return failed(cudaErrorMemoryAllocation);
  // No byte more: so the address sanitizer sees who reads on.
  if (::posix_memalign(memory, 256, std::max<size_t>(bytes, 1)) != 0) return failed(cudaErrorMemoryAllocation);
  std::memset(*memory, 0xff, bytes);
  const std::lock_guard lock(allocations().mutex);
  allocations().blocks[reinterpret_cast<uintptr_t>(*memory)] = {bytes, chosen_device};
  allocations().bytes += bytes;
  return cudaSuccess;
}
// After all that was enqueued, as the driver does.
cudaError_t cudaFree(void* memory) {
  if (breaks_capture()) return failed(cudaErrorStreamCaptureUnsupported);
  if (memory == nullptr) return cudaSuccess;
  const auto address = reinterpret_cast<uintptr_t>(memory);
  int device = 0;
  {
    const std::lock_guard lock(allocations().mutex);
    const auto found = allocations().blocks.find(address);
    if (found == allocations().blocks.end()) return failed(cudaErrorInvalidValue);
    device = found->second.device;
  }
  wait_for_device(device);
  {
    const std::lock_guard lock(allocations().mutex);
    allocations().bytes -= allocations().blocks[address].size;
    allocations().blocks.erase(address);
  }
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  if (const cudaError_t error = call(); error != cudaSuccess) return error;
  *total = kMemoryBytes;
  *free = kMemoryBytes - std::min(kMemoryBytes, static_cast<size_t>(device_bytes()));
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  if (const cudaError_t error = call(); error != cudaSuccess) return error;
  if (breaks_capture()) return failed(cudaErrorStreamCaptureUnsupported);
  *memory = std::malloc(std::max<size_t>(bytes, 1));
  if (*memory == nullptr) return failed(cudaErrorMemoryAllocation);
  allocations().pin(*memory, {std::max<size_t>(bytes, 1), chosen_device});
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  if (breaks_capture()) return failed(cudaErrorStreamCaptureUnsupported);
  if (memory == nullptr) return cudaSuccess;
  const cudaError_t error = cudaHostUnregister(memory);
  std::free(memory);
  return error;
}
cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned) {
  if (const cudaError_t error = call(); error != cudaSuccess) return error;
  if (breaks_capture()) return failed(cudaErrorStreamCaptureUnsupported);
  if (memory == nullptr || bytes == 0) return failed(cudaErrorInvalidValue);
  allocations().pin(memory, {bytes, chosen_device});
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* memory) {
  if (breaks_capture()) return failed(cudaErrorStreamCaptureUnsupported);
  int device = 0;
  {
    const std::lock_guard lock(allocations().mutex);
    const auto found = allocations().pinned.find(reinterpret_cast<uintptr_t>(memory));
    if (found == allocations().pinned.end()) return failed(cudaErrorInvalidValue);
    device = found->second.device;
  }
  wait_for_device(device);
  const std::lock_guard lock(allocations().mutex);
  allocations().pinned.erase(reinterpret_cast<uintptr_t>(memory));
  return cudaSuccess;
}
cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
  if (counts_clears && fails(true)) return failed(failing_with);
  return cudaMemsetAsync(memory, value, bytes, nullptr);
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  if (const cudaError_t error = call(); error != cudaSuccess) return error;
  if (bytes == 0) return cudaSuccess;
  if (!allocations().holds(memory, bytes)) return failed(cudaErrorInvalidValue);
  enqueue(stream, [=] {
    std::memset(memory, value, bytes);
    return true;
  });
  return cudaSuccess;
}
// What the host may page is read before this returns, and written, too.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (const cudaError_t error = call(); error != cudaSuccess) return error;
  if (bytes == 0) return cudaSuccess;
  const bool to_device = kind != cudaMemcpyDeviceToHost, from_device = kind != cudaMemcpyHostToDevice;
  if (allocations().holds(to, bytes) != to_device || allocations().holds(from, bytes) != from_device) {
    return failed(cudaErrorInvalidValue);
  }
  if (!from_device && !allocations().has_pinned(from, bytes)) {
    const auto* begin = static_cast<const unsigned char*>(from);
    enqueue(stream, [to, read = std::vector<unsigned char>(begin, begin + bytes)] {
      std::memcpy(to, read.data(), read.size());
      return true;
    });
    return cudaSuccess;
  }
  enqueue(stream, [=] {
    std::memmove(to, from, bytes);
    return true;
  });
  if (!to_device && !allocations().has_pinned(to, bytes)) return cudaStreamSynchronize(stream);
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInsufficientDriver: return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
  }
  return "cudaErrorUnknown";
}
const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }
