#include "engine/comm/shared_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

namespace dtrain::engine {

Status SharedMemory::map(size_t bytes, int flags) {
  // Without reservation: much of it may never be touched.
  void* const at =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, fd_.get(), 0);
  if (at == MAP_FAILED) return errno_error(fmt::format("map {} bytes", bytes), errno);
  data_ = static_cast<std::byte*>(at);
  size_ = bytes;
  return ok();
}

void SharedMemory::prefer_huge(size_t offset, size_t bytes) {
  ::madvise(data_ + offset, bytes, MADV_HUGEPAGE);
}

Result<SharedMemory> SharedMemory::alone(size_t bytes) {
  SharedMemory memory;
  TRY(memory.map(bytes, MAP_PRIVATE | MAP_ANONYMOUS));
  return memory;
}

Result<SharedMemory> SharedMemory::create(size_t bytes) {
  SharedMemory memory;
  memory.fd_.reset(::memfd_create("dtrain-engine", MFD_CLOEXEC));
  if (!memory.fd_) return errno_error("create shared memory", errno);
  if (::ftruncate(memory.fd_.get(), static_cast<off_t>(bytes)) != 0) {
    return errno_error(fmt::format("create {} bytes of shared memory", bytes), errno);
  }
  TRY(memory.map(bytes, MAP_SHARED));
  return memory;
}

Result<SharedMemory> SharedMemory::open(Fd fd, size_t bytes) {
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return errno_error("stat shared memory", errno);
  if (static_cast<size_t>(st.st_size) != bytes) {
    return Error{Code::FailedPrecondition,
                 fmt::format("the shared memory has {} bytes, not {}", st.st_size, bytes), ""};
  }
  SharedMemory memory;
  memory.fd_ = std::move(fd);
  TRY(memory.map(bytes, MAP_SHARED));
  return memory;
}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  if (this != &other) {
    if (data_ != nullptr) ::munmap(data_, size_);
    fd_ = std::move(other.fd_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace dtrain::engine
