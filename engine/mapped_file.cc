#include "engine/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace dtrain::engine {

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  // Not blocked by a pipe of that name.
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat facts {};
  if (!fd || ::fstat(fd.get(), &facts) != 0) {
    return errno_error(fmt::format("open {}", path.native()), errno);
  }
  if (!S_ISREG(facts.st_mode)) {
    return Error{Code::InvalidArgument, fmt::format("{} is no regular file", path.native()), ""};
  }
  const auto size = static_cast<size_t>(facts.st_size);
  if (size == 0) return MappedFile(std::move(fd), nullptr, 0);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) return errno_error(fmt::format("map {}", path.native()), errno);
  return MappedFile(std::move(fd), static_cast<const std::byte*>(data), size);
}

Status MappedFile::read(size_t offset, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t got = ::pread(fd_.get(), to.data(), to.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error("read", errno);
    if (got == 0) return Error{Code::DataLoss, "it has become shorter", ""};
    to = to.subspan(static_cast<size_t>(got));
    offset += static_cast<size_t>(got);
  }
  return ok();
}

bool MappedFile::is_whole() const {
  struct stat facts {};
  return ::fstat(fd_.get(), &facts) == 0 && static_cast<size_t>(facts.st_size) >= size_;
}

void MappedFile::ask_for(const std::byte* from, size_t size) const {
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(from) / page * page;
  // A wish: what is refused is read when it is needed.
  (void)::madvise(reinterpret_cast<void*>(begin), reinterpret_cast<uintptr_t>(from) + size - begin, MADV_WILLNEED);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : fd_(std::move(other.fd_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace dtrain::engine
