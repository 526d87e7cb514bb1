// A Device is a GPU as one participant uses it: a stream on which everything is enqueued, and the first
// error of anything that was. Owner and thread: one participant, whose current device it makes this one.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <string>

#include "engine/comm/deadline.h"
#include "schema/result.h"

namespace dtrain::engine::cuda {

// How many this process may use (CUDA_VISIBLE_DEVICES). An error: there is no driver, or it is too old.
Result<int> visible_devices();

// ResourceExhausted: the current device, of this name, has not enough memory for `what`; with how much is free now.
Error lacks_memory(std::string_view name, std::string_view what, std::string_view hint);

class Device {
 public:
  static Result<std::unique_ptr<Device>> open(int ordinal);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  cudaStream_t stream() const { return stream_; }
  const std::string& name() const { return name_; }  // "NVIDIA H100 80GB HBM3"
  const std::string& uuid() const { return uuid_; }  // 16 bytes
  std::string described() const;                     // with the uuid as nvidia-smi shows it

  // Makes it this thread's device; to be called first by each thread that calls anything below.
  void use();

  // Keeps the first error.
  void check(cudaError_t error, const char* doing);
  const Status& status() const { return status_; }
  // Whether some call has failed so far, of which wait() will tell.
  bool has_failed();

  template <class T>
  void copy_to_device(const T* from, int64_t count, T* to) {
    copy(from, count * static_cast<int64_t>(sizeof(T)), to, cudaMemcpyHostToDevice);
  }
  template <class T>
  void copy_to_host(const T* from, int64_t count, T* to) {
    copy(from, count * static_cast<int64_t>(sizeof(T)), to, cudaMemcpyDeviceToHost);
  }

  // Until all that was enqueued is done. `look` is asked now and then whether to give up.
  Status wait(const std::function<Status()>& look = {});
  // Until what the stream had when this event was recorded is.
  Status wait(cudaEvent_t event, const std::function<Status()>& look);
  // The same before a call that itself waits, without a `look`, for what was enqueued: plans are timed. `watch` makes
  // the `look` of each.
  void watch(std::function<std::function<Status()>()> watch) { watch_ = std::move(watch); }
  Status settle() { return wait(watch_ ? watch_() : std::function<Status()>()); }

 private:
  explicit Device(int ordinal) : ordinal_(ordinal) {}
  void copy(const void* from, int64_t bytes, void* to, cudaMemcpyKind kind);
  template <class Query>
  Status wait_until(const Query& query, const std::function<Status()>& look);

  const int ordinal_;
  std::string name_, uuid_;
  cudaStream_t stream_ = nullptr;
  std::function<std::function<Status()>()> watch_;
  Status status_ = ok();
};

}  // namespace dtrain::engine::cuda
