// One mapping of zeroes that may be shared with other processes of this host.
#pragma once

#include <cstddef>

#include "schema/fd.h"
#include "schema/result.h"

namespace dtrain::engine {

class SharedMemory {
 public:
  SharedMemory() = default;
  // For the threads of this process only.
  static Result<SharedMemory> alone(size_t bytes);
  // To be shared by passing fd(); costs memory only where it is touched.
  static Result<SharedMemory> create(size_t bytes);
  // What another process created. FailedPrecondition if it is not so large.
  static Result<SharedMemory> open(Fd fd, size_t bytes);

  SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  // Asks for huge pages there: fewer misses where the kernel grants it; all works without.
  void prefer_huge(size_t offset, size_t bytes);

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  int fd() const { return fd_.get(); }

 private:
  Status map(size_t bytes, int flags);

  Fd fd_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace dtrain::engine
