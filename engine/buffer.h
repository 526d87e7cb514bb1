// Memory of fixed size on cache lines, zero at first.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

namespace dtrain::engine {

// Bytes of all buffers that this thread has made so far: what a part of a program takes is the difference.
inline int64_t& buffer_bytes_made() {
  thread_local int64_t bytes = 0;
  return bytes;
}

template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t size) : size_(size) {
    const size_t bytes = (static_cast<size_t>(size) * sizeof(T) + 63) / 64 * 64;
    memory_.reset(static_cast<T*>(std::aligned_alloc(64, bytes == 0 ? 64 : bytes)));
    if (!memory_) throw std::bad_alloc();
    std::memset(static_cast<void*>(memory_.get()), 0, bytes);
    buffer_bytes_made() += static_cast<int64_t>(bytes);
  }
  T* data() { return memory_.get(); }
  const T* data() const { return memory_.get(); }
  int64_t size() const { return size_; }
  T& operator[](int64_t i) { return memory_.get()[i]; }
  const T& operator[](int64_t i) const { return memory_.get()[i]; }

 private:
  struct Free {
    void operator()(T* block) const { std::free(block); }
  };
  std::unique_ptr<T, Free> memory_;
  int64_t size_ = 0;
};

}  // namespace dtrain::engine
