#include "schema/listing.h"

#include <dirent.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

namespace dtrain {

Status Listing::read(int directory_fd) {
  text_.clear();
  names_.clear();
  // The kernel's call instead of readdir: no allocation of its own, and a buffer that takes most
  // directories in one go.
  alignas(dirent64) char buffer[64 << 10];
  for (;;) {
    const long got = ::syscall(SYS_getdents64, directory_fd, buffer, sizeof buffer);
    if (got < 0) return errno_error("list a directory", errno);
    if (got == 0) break;
    for (long at = 0; at < got;) {
      const auto* item = reinterpret_cast<const dirent64*>(buffer + at);
      at += item->d_reclen;
      const std::string_view name = item->d_name;
      if (name == "." || name == "..") continue;
      names_.push_back(
          {static_cast<uint32_t>(text_.size()), static_cast<uint32_t>(name.size()), item->d_type});
      text_.append(name.data(), name.size() + 1);
    }
  }
  const char* text = text_.data();
  std::sort(names_.begin(), names_.end(), [text](const Name& a, const Name& b) {
    return std::string_view(text + a.start, a.bytes) < std::string_view(text + b.start, b.bytes);
  });
  return ok();
}

bool Listing::contains(std::string_view name) const {
  for (size_t i = 0; i < size(); ++i) {
    if (view(i) == name) return true;
  }
  return false;
}

}  // namespace dtrain
