#include "runner/output_copy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "runner/file_copy.h"
#include "schema/fd.h"
#include "schema/listing.h"

namespace dtrain::runner {
namespace fs = std::filesystem;
namespace {

constexpr int kOpenLinked = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

bool same_time(const timespec& a, const timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

bool is_before(const timespec& a, const timespec& b) {
  return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
}

class OutputCopy {
 public:
  OutputCopy(const char* unfinished, bool spares_newer, std::vector<std::string>& not_copied)
      : unfinished_(unfinished), spares_newer_(spares_newer), not_copied_(not_copied) {}

  // `path` is the name as people know it.
  Status add(int from, int to, const char* name, const std::string& path) {
    const Status copied = copy(from, to, name, path);
    if (copied.ok() || copied.error().code == Code::ResourceExhausted) return copied;
    not_copied_.push_back(copied.error().message);
    return ok();
  }

 private:
  Status copy(int from, int to, const char* name, const std::string& path) {
    struct stat st {};
    if (::fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) != 0) return errno_error(path, errno);
    if (S_ISDIR(st.st_mode)) return directory(from, to, name, st, path);
    struct stat there {};
    if (spares_newer_ && ::fstatat(to, name, &there, AT_SYMLINK_NOFOLLOW) == 0 && is_before(st.st_mtim, there.st_mtim)) {
      return Error{Code::AlreadyExists, path + ": what is there was written later", ""};
    }
    if (S_ISLNK(st.st_mode)) return link(from, to, name, path);
    if (S_ISREG(st.st_mode)) return file(from, to, name, st, path);
    return Error{Code::InvalidArgument, path + ": not a file", ""};
  }

  Status directory(int from, int to, const char* name, const struct stat& st, const std::string& path) {
    const Fd source(::openat(from, name, kOpenDirectory));
    if (!source) return errno_error(path, errno);
    const mode_t mode = (st.st_mode & 0777) | 0700;
    if (::mkdirat(to, name, mode) != 0 && errno != EEXIST) return errno_error(path, errno);
    Fd copy(::openat(to, name, kOpenDirectory));
    if (!copy && errno == ENOTDIR) {  // something else has its name, or a link
      if (::unlinkat(to, name, 0) != 0 || ::mkdirat(to, name, mode) != 0) return errno_error(path, errno);
      copy.reset(::openat(to, name, kOpenDirectory));
    }
    if (!copy) return errno_error(path, errno);
    Listing names;
    TRY(names.read(source.get()));
    for (size_t i = 0; i < names.size(); ++i) {
      TRY(add(source.get(), copy.get(), names.name(i), path + '/' + names.name(i)));
    }
    return ok();
  }

  Status link(int from, int to, const char* name, const std::string& path) {
    char target[4096];
    const ssize_t got = ::readlinkat(from, name, target, sizeof target - 1);
    if (got < 0) return errno_error(path, errno);
    target[got] = '\0';
    ::unlinkat(to, unfinished_, 0);  // of a runner that was killed
    if (::symlinkat(target, to, unfinished_) != 0) return errno_error(path, errno);
    return give_name(to, name, path);
  }

  Status file(int from, int to, const char* name, const struct stat& st, const std::string& path) {
    if (is_copied(to, name, st)) return ok();
    Status written = write(from, to, name, st);
    if (written.ok()) return give_name(to, name, path);
    ::unlinkat(to, unfinished_, 0);
    return std::move(written).error().with_context(path);
  }

  // By an earlier call: an older run's file was there before this one's was written.
  static bool is_copied(int to, const char* name, const struct stat& st) {
    struct stat there {};
    return ::fstatat(to, name, &there, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(there.st_mode) &&
           there.st_size == st.st_size && same_time(there.st_mtim, st.st_mtim) &&
           !is_before(there.st_ctim, st.st_ctim);
  }

  Status write(int from, int to, const char* name, const struct stat& st) {
    const Fd source(::openat(from, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    if (!source) return errno_error("open", errno);
    ::unlinkat(to, unfinished_, 0);  // of a runner that was killed
    Fd copy(::openat(to, unfinished_, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!copy) return errno_error("create", errno);
    TRY(copy_file(source.get(), copy.get(), CopyKind::CloneOrBytes));
    const timespec times[] = {st.st_atim, st.st_mtim};
    (void)::futimens(copy.get(), times);  // else it is only copied once more
    if (::fchmod(copy.get(), st.st_mode & 0777) != 0) return errno_error("change", errno);
    // Over a network only this tells of a full disk.
    return ::close(copy.release()) == 0 ? ok() : Status(errno_error("write", errno));
  }

  Status give_name(int to, const char* name, const std::string& path) {
    if (::renameat(to, unfinished_, to, name) == 0) return ok();
    const int error = errno;
    ::unlinkat(to, unfinished_, 0);
    return errno_error(path, error);
  }

  const char* unfinished_;
  const bool spares_newer_;
  std::vector<std::string>& not_copied_;
};

}  // namespace

Status copy_output(const fs::path& from, const fs::path& to, const std::string& name,
                   const std::string& unfinished, bool spares_newer,
                   std::vector<std::string>& not_copied) {
  fs::path inner = fs::path(name).lexically_normal();
  if (!inner.has_filename()) inner = inner.parent_path();  // "ckpt/"
  struct stat st {};
  if (::lstat((from / inner).c_str(), &st) != 0 && (errno == ENOENT || errno == ENOTDIR)) return ok();
  const auto copy = [&]() -> Status {
    const fs::path target = to / inner.parent_path();
    std::error_code error;
    fs::create_directories(target, error);
    if (error) return errno_error(name, error.value());
    const Fd source(::open((from / inner.parent_path()).c_str(), kOpenLinked));
    if (!source) return errno_error(name, errno);
    const Fd place(::open(target.c_str(), kOpenLinked));
    if (!place) return errno_error(name, errno);
    return OutputCopy(unfinished.c_str(), spares_newer, not_copied)
        .add(source.get(), place.get(), inner.filename().c_str(), inner.string());
  };
  const Status copied = copy();
  if (copied.ok() || copied.error().code == Code::ResourceExhausted) return copied;
  not_copied.push_back(copied.error().message);
  return ok();
}

}  // namespace dtrain::runner
