#include "runner/process_place.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace dtrain::runner {
namespace {

// Of one kind, "user" or "mnt".
Result<bool> shares_namespace(pid_t pid, const char* kind) {
  struct stat its {}, ours {};
  const std::string path = fmt::format("/proc/{}/ns/{}", pid, kind);
  const std::string own = fmt::format("/proc/self/ns/{}", kind);
  if (::stat(path.c_str(), &its) != 0) return errno_error("look at " + path, errno);
  if (::stat(own.c_str(), &ours) != 0) return errno_error("look at " + own, errno);
  return its.st_ino == ours.st_ino && its.st_dev == ours.st_dev;
}

}  // namespace

Result<ProcessPlace> ProcessPlace::of(const ProcessIdentity& process) {
  ProcessPlace place;
  place.process_.reset(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
  if (!place.process_ && errno != ESRCH) return errno_error(fmt::format("look at process {}", process.pid), errno);
  TRY(const bool same_user, shares_namespace(process.pid, "user"));
  TRY(const bool same_files, shares_namespace(process.pid, "mnt"));
  if (!same_user) place.namespaces_ |= CLONE_NEWUSER;
  if (!same_files) place.namespaces_ |= CLONE_NEWNS;
  place.root_ = fmt::format("/proc/{}/root", process.pid);
  place.directory_ = fmt::format("/proc/{}/cwd", process.pid);
  // Only now: all of that was of this process, and of no later one with its number.
  bool alive = false;
  if (place.process_) {
    TRY(alive, check_alive(process));
  }
  if (!alive) return Error{Code::NotFound, "the process has ended", ""};
  return place;
}

int ProcessPlace::enter() const {
  const int root = ::open(root_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  const int directory = ::open(directory_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (root < 0 || directory < 0) return errno;
  // It was its directory, and not that of a later process with its number.
  if (::syscall(SYS_pidfd_send_signal, process_.get(), 0, nullptr, 0) != 0) return errno;
  if (namespaces_ != 0 && ::setns(process_.get(), namespaces_) != 0) return errno;
  // A namespace's own root is another one where dtrain itself runs in a chroot.
  if ((namespaces_ & CLONE_NEWNS) != 0 && (::fchdir(root) != 0 || ::chroot(".") != 0)) return errno;
  return ::fchdir(directory) == 0 ? 0 : errno;
}

}  // namespace dtrain::runner
