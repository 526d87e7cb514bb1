#include "schema/lock_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <string>

namespace dtrain {

namespace {

std::string pid_in(int fd) {
  char pid[16] = {};
  const ssize_t n = pread(fd, pid, sizeof pid - 1, 0);
  return n > 0 ? std::string(pid, static_cast<size_t>(n)) : "";
}

// Of the whole file, and of the open file description: it goes when the last descriptor does.
struct flock whole_file() {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

// Only looks: to try and take it would be in the way of whoever takes it in that moment.
bool is_locked(int fd) {
  struct flock lock = whole_file();
  return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

// Only to look. What lies there may be anybody's, a pipe too, whose other end nobody would open.
Fd open_to_look(const std::filesystem::path& path) {
  return Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
}

// Without O_CREAT first: in a directory like /tmp the kernel may refuse it for a file of another user.
Fd open_lock(const std::filesystem::path& path, mode_t mode) {
  Fd fd(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (fd || errno != ENOENT) return fd;
  fd.reset(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (fd) fchmod(fd.get(), mode);  // whatever the umask
  return fd;
}

}  // namespace

bool is_removed(const Fd& lock) {
  struct stat held = {};
  return fstat(lock.get(), &held) == 0 && held.st_nlink == 0;
}

Result<Fd> hold_lock(const std::filesystem::path& path, mode_t mode) {
  Fd fd = open_lock(path, mode);
  if (!fd) return errno_error(fmt::format("open {}", path.string()), errno);
  struct flock lock = whole_file();
  if (fcntl(fd.get(), F_OFD_SETLK, &lock) != 0) {
    if (errno != EAGAIN && errno != EACCES) {
      return errno_error(fmt::format("lock {}", path.string()), errno);
    }
    const std::string pid = pid_in(fd.get());
    return Error{Code::FailedPrecondition,
                 fmt::format("{} is held by {}", path.string(),
                             pid.empty() ? "another process" : "pid " + pid),
                 ""};
  }
  const std::string pid = std::to_string(getpid());
  // Over what was there: the disk may have no room left.
  if (pwrite(fd.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size()) ||
      ftruncate(fd.get(), static_cast<off_t>(pid.size())) != 0) {
    return errno_error(fmt::format("write {}", path.string()), errno);
  }
  return fd;
}

bool is_held(const std::filesystem::path& path) {
  const Fd fd = open_to_look(path);
  return fd && is_locked(fd.get());
}

std::optional<pid_t> lock_holder(const std::filesystem::path& path) {
  const Fd fd = open_to_look(path);
  if (!fd || !is_locked(fd.get())) return std::nullopt;
  const std::string text = pid_in(fd.get());
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), pid);
  if (error != std::errc() || end != text.data() + text.size() || pid <= 1) return std::nullopt;
  return pid;
}

}  // namespace dtrain
