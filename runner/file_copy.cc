#include "runner/file_copy.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "schema/fd.h"
#include "schema/listing.h"
#include "schema/write_all.h"

namespace dtrain::runner {

namespace {

constexpr size_t kChunkBytes = size_t{1} << 30;
constexpr size_t kCopyBytes = 256 << 10;

Status copy_by_reading(int from, int to) {
  std::string buffer(kCopyBytes, '\0');
  for (;;) {
    const ssize_t got = ::read(from, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error("copy a file", errno);
    if (got == 0) return ok();
    const int failed = write_all(to, {buffer.data(), static_cast<size_t>(got)});
    if (failed != 0) return errno_error("copy a file", failed);
  }
}

// What goes into one directory, name by name.
struct DirectoryCopy {
  int from;
  int to;
  CopyKind kind;
  bool all_shared = true;

  Status file(const char* name, mode_t mode) {
    const Fd source(::openat(from, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    const Fd copy(::openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!source || !copy) return errno_error(fmt::format("copy {}", name), errno);
    TRY(const bool shared, copy_file(source.get(), copy.get(), kind));
    // What could not be shared once can't be shared for its neighbours either.
    if (!shared) kind = CopyKind::Bytes;
    all_shared = all_shared && shared;
    if (::fchmod(copy.get(), mode) != 0) return errno_error(fmt::format("copy {}", name), errno);
    return ok();
  }

  Status link(const char* name) {
    char target[4096];
    const ssize_t got = ::readlinkat(from, name, target, sizeof target - 1);
    if (got < 0) return errno_error(fmt::format("copy link {}", name), errno);
    target[got] = '\0';
    if (::symlinkat(target, to, name) == 0) return ok();
    return errno_error(fmt::format("copy link {}", name), errno);
  }

  Status directory(const char* name, mode_t mode) {
    constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    const Fd source(::openat(from, name, kFlags));
    if (!source || ::mkdirat(to, name, 0700) != 0) {
      return errno_error(fmt::format("copy {}", name), errno);
    }
    const Fd copy(::openat(to, name, kFlags));
    if (!copy) return errno_error(fmt::format("copy {}", name), errno);
    TRY(const bool shared, copy_directory(source.get(), copy.get(), kind));
    if (!shared) kind = CopyKind::Bytes;
    all_shared = all_shared && shared;
    if (::fchmod(copy.get(), mode) != 0) return errno_error(fmt::format("copy {}", name), errno);
    return ok();
  }
};

}  // namespace

Result<bool> copy_file(int from, int to, CopyKind kind) {
  if (kind != CopyKind::Bytes) {
    if (::ioctl(to, FICLONE, from) == 0) return true;
    if (kind == CopyKind::Clone) return errno_error("share a file's blocks", errno);
  }
  for (bool any = false;; any = true) {
    const ssize_t n = ::copy_file_range(from, nullptr, to, nullptr, kChunkBytes, 0);
    if (n == 0) return false;
    if (n > 0 || errno == EINTR) continue;
    const bool unable = errno == EXDEV || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP;
    if (any || !unable) return errno_error("copy a file", errno);
    TRY(copy_by_reading(from, to));
    return false;
  }
}

Result<bool> copy_directory(int from, int to, CopyKind kind) {
  Listing names;
  TRY(names.read(from));
  DirectoryCopy copy{from, to, kind};
  for (size_t i = 0; i < names.size(); ++i) {
    const char* name = names.name(i);
    struct stat st {};
    if (::fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
      return errno_error(fmt::format("copy {}", name), errno);
    }
    const mode_t mode = st.st_mode & 0777;
    if (S_ISDIR(st.st_mode)) {
      TRY(copy.directory(name, mode));
    } else if (S_ISLNK(st.st_mode)) {
      TRY(copy.link(name));
    } else {
      TRY(copy.file(name, mode));
    }
  }
  return copy.all_shared;
}

}  // namespace dtrain::runner
