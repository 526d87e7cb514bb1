#include "runner/data_mount.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>

#include "runner/mount_calls.h"

namespace dtrain::runner {

Result<DataMountPlan> DataMountPlan::make(const DataMount& mount) {
  DataMountPlan plan;
  plan.point_ = mount.point;
  for (const DataSet& set : mount.sets) {
    struct stat info {};
    if (::stat(set.path.c_str(), &info) != 0) {
      return Error{Code::NotFound,
                   fmt::format("data {}: {}: {}", set.name, set.path, std::strerror(errno)), ""};
    }
    plan.binds_.push_back({set.path, mount.point + "/" + set.name, S_ISDIR(info.st_mode)});
  }
  return plan;
}

// Everything is read-only at the end, the directory itself too: what is written there would be
// lost.
DataMountPlan::Failure DataMountPlan::enter() const {
  if (::unshare(CLONE_NEWNS) != 0) return {Step::Namespace, 0, errno};
  // What is mounted and unmounted outside is so in here too; nothing of ours gets out.
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0) {
    return {Step::Propagation, 0, errno};
  }
  if (::mount("tmpfs", point_.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m") != 0) {
    return {Step::Directory, 0, errno};
  }
  for (size_t i = 0; i < binds_.size(); ++i) {
    const Bind& bind = binds_[i];
    const int set = static_cast<int>(i);
    if (bind.directory) {
      if (::mkdir(bind.target.c_str(), 0755) != 0) return {Step::Place, set, errno};
    } else {
      const int file = ::open(bind.target.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
      if (file < 0) return {Step::Place, set, errno};
      ::close(file);
    }
    if (::mount(bind.source.c_str(), bind.target.c_str(), nullptr, MS_BIND | MS_REC, nullptr) !=
        0) {
      return {Step::Bind, set, errno};
    }
  }
  if (const int error = make_read_only(AT_FDCWD, point_.c_str(), Below::Too); error != 0) return {Step::ReadOnly, 0, error};
  return {};
}

Error DataMountPlan::explain(const Failure& failure) const {
  const auto say = [&](const std::string& what) {
    return Error{Code::FailedPrecondition,
                 fmt::format("{}: {}", what, std::strerror(failure.error)), ""};
  };
  switch (failure.step) {
    case Step::Namespace:
      return say("a mount namespace for the data sets");
    case Step::Propagation:
      return say("keeping the mounts of the data sets to itself");
    case Step::Directory:
      return say("mounting on " + point_);
    case Step::Place:
    case Step::Bind: {
      const Bind& bind = binds_.at(static_cast<size_t>(failure.set));
      return say(fmt::format("showing {} as {}", bind.source, bind.target));
    }
    case Step::ReadOnly:
      return say("making the data sets read-only");
  }
  return say("the data sets");
}

Status try_data_mount(const DataMount& mount) {
  TRY(const DataMountPlan plan, DataMountPlan::make(mount));
  DataMountPlan::Failure failure;
  try {
    std::thread([&] { failure = plan.enter(); }).join();
  } catch (const std::system_error& e) {
    return Error{Code::ResourceExhausted, fmt::format("a thread: {}", e.what()), ""};
  }
  if (failure.error != 0) return plan.explain(failure);
  return ok();
}

}  // namespace dtrain::runner
