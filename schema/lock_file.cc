#include "schema/lock_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace dtrain {

Result<Fd> hold_lock(const std::filesystem::path& path) {
  Fd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd) return errno_error(fmt::format("open {}", path.string()), errno);
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return errno_error(fmt::format("lock {}", path.string()), errno);
    char pid[16] = {};
    const ssize_t n = pread(fd.get(), pid, sizeof pid - 1, 0);
    return Error{Code::FailedPrecondition,
                 fmt::format("{} is held by {}", path.string(),
                             n > 0 ? "pid " + std::string(pid) : "another process"),
                 ""};
  }
  const std::string pid = std::to_string(getpid());
  if (ftruncate(fd.get(), 0) != 0 ||
      pwrite(fd.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return errno_error(fmt::format("write {}", path.string()), errno);
  }
  return fd;
}

bool is_held(const std::filesystem::path& path) {
  const Fd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  return fd && flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

}  // namespace dtrain
