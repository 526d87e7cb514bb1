// Memory of fixed size on cache lines, zero at first.
#pragma once

#include <cstdint>
#include <memory>

namespace dtrain::engine {

// Bytes of all buffers that this thread has made so far: what a part of a program takes is the difference.
inline int64_t& buffer_bytes_made() {
  thread_local int64_t bytes = 0;
  return bytes;
}

// Large ones that a thread makes one after the other share huge pages, where the system has them: a model's
// activations are gone over again and again. Throws bad_alloc.
std::shared_ptr<void> buffer_memory(size_t bytes);

template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t size) : size_(size) {
    const size_t bytes = (static_cast<size_t>(size) * sizeof(T) + 63) / 64 * 64;
    memory_ = buffer_memory(bytes);
    buffer_bytes_made() += static_cast<int64_t>(bytes);
  }
  Buffer(Buffer&&) noexcept = default;
  Buffer& operator=(Buffer&&) noexcept = default;
  T* data() { return static_cast<T*>(memory_.get()); }
  const T* data() const { return static_cast<const T*>(memory_.get()); }
  int64_t size() const { return size_; }
  T& operator[](int64_t i) { return data()[i]; }
  const T& operator[](int64_t i) const { return data()[i]; }

 private:
  std::shared_ptr<void> memory_;
  int64_t size_ = 0;
};

}  // namespace dtrain::engine
