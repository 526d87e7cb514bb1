// Memory of fixed size on the current device, zero at first, and host memory that a device copies from
// and to by itself. std::bad_alloc when there is not enough.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "engine/buffer.h"

namespace dtrain::engine::cuda {

template <class T>
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(int64_t size) : size_(size) {
    const size_t bytes = static_cast<size_t>(size) * sizeof(T);
    if (bytes == 0) return;
    void* memory = nullptr;
    if (cudaMalloc(&memory, bytes) != cudaSuccess) {
      cudaGetLastError();  // it is told by the exception
      throw std::bad_alloc();
    }
    memory_.reset(static_cast<T*>(memory));
    // On the default stream, for which the others don't wait. A failure shows at the next wait.
    if (cudaMemset(memory, 0, bytes) == cudaSuccess) static_cast<void>(cudaStreamSynchronize(nullptr));
    buffer_bytes_made() += static_cast<int64_t>(bytes);
  }
  T* data() { return memory_.get(); }
  const T* data() const { return memory_.get(); }
  int64_t size() const { return size_; }

 private:
  struct Free {
    void operator()(T* block) const { cudaFree(block); }
  };
  std::unique_ptr<T, Free> memory_;
  int64_t size_ = 0;
};

template <class T>
class PinnedMemory {
 public:
  PinnedMemory() = default;
  explicit PinnedMemory(int64_t size) : size_(size) {
    void* memory = nullptr;
    if (size > 0 && cudaMallocHost(&memory, static_cast<size_t>(size) * sizeof(T)) != cudaSuccess) {
      cudaGetLastError();
      throw std::bad_alloc();
    }
    memory_.reset(static_cast<T*>(memory));
  }
  T* data() { return memory_.get(); }
  const T* data() const { return memory_.get(); }
  T& operator*() { return *memory_; }
  int64_t size() const { return size_; }

 private:
  struct Free {
    void operator()(T* block) const { cudaFreeHost(block); }
  };
  std::unique_ptr<T, Free> memory_;
  int64_t size_ = 0;
};

// Host memory of somebody else's that a device copies from and to by itself, while this lives. Where the
// driver does not take it, copies are slower.
class RegisteredMemory {
 public:
  RegisteredMemory(void* memory, size_t bytes)
      : memory_(cudaHostRegister(memory, bytes, cudaHostRegisterPortable) == cudaSuccess ? memory : nullptr) {
    if (memory_ == nullptr) cudaGetLastError();
  }
  RegisteredMemory(RegisteredMemory&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)) {}
  RegisteredMemory& operator=(RegisteredMemory&&) = delete;
  ~RegisteredMemory() {
    if (memory_ != nullptr) cudaHostUnregister(memory_);
  }

 private:
  void* memory_;
};

}  // namespace dtrain::engine::cuda
