#include "engine/cuda/device.h"

#include <chrono>
#include <thread>

namespace dtrain::engine::cuda {

namespace {

Error error_of(cudaError_t error, std::string_view doing) {
  return {Code::Internal, fmt::format("{}: {} ({})", doing, cudaGetErrorString(error), cudaGetErrorName(error)), ""};
}

}  // namespace

Result<int> visible_devices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorNoDevice) return 0;
  if (error == cudaErrorInsufficientDriver) {
    int runtime = 0;
    static_cast<void>(cudaRuntimeGetVersion(&runtime));
    return Error{Code::FailedPrecondition,
                 fmt::format("no driver for CUDA {}.{} is here", runtime / 1000, runtime % 1000 / 10),
                 "a newer NVIDIA driver, or no gpus: in resources"};
  }
  if (error != cudaSuccess) return error_of(error, "look for GPUs");
  return count;
}

Error lacks_memory(std::string_view name, std::string_view what, std::string_view hint) {
  size_t free = 0, total = 0;
  const bool told = cudaMemGetInfo(&free, &total) == cudaSuccess;
  const auto gib = [](size_t bytes) { return static_cast<double>(bytes) / (1 << 30); };
  return {Code::ResourceExhausted,
          fmt::format("{} has not enough memory for {}{}", name, what,
                      told ? fmt::format(": {:.1f} of {:.1f} GiB are free", gib(free), gib(total)) : ""),
          std::string(hint)};
}

Result<std::unique_ptr<Device>> Device::open(int ordinal) {
  std::unique_ptr<Device> device(new Device(ordinal));
  device->use();
  cudaDeviceProp properties;
  device->check(cudaGetDeviceProperties(&properties, ordinal), "ask what GPU it is");
  // A blocking stream would wait for the default one, which others may use.
  device->check(cudaStreamCreateWithFlags(&device->stream_, cudaStreamNonBlocking), "open a stream");
  TRY(device->status_);
  device->name_ = properties.name;
  device->uuid_.assign(properties.uuid.bytes, sizeof properties.uuid.bytes);
  return device;
}

Device::~Device() {
  if (stream_ == nullptr) return;
  use();
  cudaStreamDestroy(stream_);
}

std::string Device::described() const {
  std::string text = name_ + " GPU-";
  for (size_t i = 0; i < uuid_.size(); ++i) {
    text += fmt::format("{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                        static_cast<unsigned char>(uuid_[i]));
  }
  return text;
}

void Device::use() { check(cudaSetDevice(ordinal_), "choose the GPU"); }

void Device::check(cudaError_t error, const char* doing) {
  if (error != cudaSuccess && status_.ok()) status_ = error_of(error, doing);
}

bool Device::has_failed() {
  check(cudaGetLastError(), "start a kernel");
  return !status_.ok();
}

void Device::copy(const void* from, int64_t bytes, void* to, cudaMemcpyKind kind) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, stream_), "copy");
}

Status Device::wait(const std::function<Status()>& look) {
  return wait_until([&] { return cudaStreamQuery(stream_); }, look);
}
Status Device::wait(cudaEvent_t event, const std::function<Status()>& look) {
  return wait_until([&] { return cudaEventQuery(event); }, look);
}

template <class Query>
Status Device::wait_until(const Query& query, const std::function<Status()>& look) {
  using Clock = std::chrono::steady_clock;
  if (has_failed()) return status_;
  // Steps are short: the first millisecond nobody sleeps, so that the next one is enqueued at once.
  const Clock::time_point began = Clock::now();
  Clock::time_point next_look = began + std::chrono::milliseconds(10);
  for (;;) {
    const cudaError_t error = query();
    if (error == cudaSuccess) return ok();
    if (error != cudaErrorNotReady) {
      check(error, "compute on the GPU");
      return status_;
    }
    const Clock::time_point now = Clock::now();
    if (now - began > std::chrono::milliseconds(1)) std::this_thread::sleep_for(std::chrono::microseconds(20));
    if (now < next_look) continue;
    if (look) TRY(look());
    next_look = now + std::chrono::milliseconds(10);
  }
}

}  // namespace dtrain::engine::cuda
