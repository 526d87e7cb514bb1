#include "runner/image_root.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <system_error>

#include "runner/mount_calls.h"

namespace dtrain::runner {
namespace fs = std::filesystem;
namespace {

// What every program takes for granted, and what names are resolved with. Nobody is to lose devices, not even to a
// careless root.
constexpr const char* kDevices = "/dev";
constexpr const char* kSharedMemory = "/dev/shm";
constexpr std::array<const char*, 3> kAlwaysShown = {"/proc", "/sys", kDevices};
constexpr std::array<const char*, 2> kShownWhereThere = {"/etc/resolv.conf", "/etc/hosts"};

bool write_text(const char* path, const char* text, size_t size) {
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool written = ::write(fd, text, size) == static_cast<ssize_t>(size);
  const int error = errno;
  ::close(fd);
  errno = error;
  return written;
}

std::vector<std::string> parents_of(const fs::path& path) {
  std::vector<std::string> all;
  for (fs::path at = path.parent_path(); at.has_relative_path(); at = at.parent_path()) all.insert(all.begin(), at.string());
  return all;
}

// Who is not the owner of an image's directory can't write there, but can where the layer has that directory already.
// As the image has it, where it has one; nothing below a link, which leads who knows where.
class LayerDirectories {
 public:
  LayerDirectories(fs::path files, fs::path upper) : files_(std::move(files)), upper_(std::move(upper)) {}

  Status make(const fs::path& inside) const {
    fs::path at;
    for (const fs::path& part : inside.relative_path()) {
      at /= part;
      struct stat info {};
      const bool is_there = ::lstat((files_ / at).c_str(), &info) == 0;
      if (is_there && !S_ISDIR(info.st_mode)) return ok();
      const fs::path own = upper_ / at;
      if (::mkdir(own.c_str(), 0755) != 0) {
        if (errno == EEXIST) continue;
        return errno_error("make " + own.string(), errno);
      }
      if (!is_there) continue;
      if (::geteuid() == 0) (void)!::lchown(own.c_str(), info.st_uid, info.st_gid);
      ::chmod(own.c_str(), info.st_mode & 07777);
      // Not to be read: it is a new one.
      if (::access((files_ / at).c_str(), R_OK | X_OK) != 0) (void)::setxattr(own.c_str(), "user.overlay.opaque", "y", 1, 0);
    }
    return ok();
  }

 private:
  const fs::path files_;
  const fs::path upper_;
};

bool is_mounted_apart(const char* path, const char* below) {
  struct stat info {}, whole {};
  return ::stat(path, &info) == 0 && ::stat(below, &whole) == 0 && info.st_dev != whole.st_dev;
}

// Where programs write, and root at home.
constexpr std::array<const char*, 4> kWrittenTo = {"/tmp", "/var/tmp", "/run", "/root"};

// The kernel splits an overlay's options at these.
bool is_plain(const std::string& path) { return path.find_first_of(",:\\\"") == std::string::npos; }

bool is_owned_by_other(const std::string& files) {
  struct stat info {};
  return ::geteuid() != 0 && ::stat(files.c_str(), &info) == 0 && info.st_uid != ::geteuid();
}

}  // namespace

Status ImageRootPlan::add(const ShownPath& shown, bool is_optional) {
  struct stat info {};
  if (::stat(shown.source.c_str(), &info) != 0) {
    if (is_optional) return ok();
    return Error{Code::NotFound, fmt::format("{}: {}", shown.source, std::strerror(errno)), ""};
  }
  if (binds_.size() == kBindsMax) {
    return Error{Code::InvalidArgument, fmt::format("more than {} places are to be shown in an image", kBindsMax), ""};
  }
  const bool keeps_names = shown.path == kDevices && is_mounted_apart(kSharedMemory, kDevices);
  binds_.push_back({shown, parents_of(shown.path), S_ISDIR(info.st_mode), is_optional, keeps_names});
  return ok();
}

Result<ImageRootPlan> ImageRootPlan::make(const ImageRoot& root, const fs::path& layer) {
  ImageRootPlan plan;
  plan.files_ = root.files;
  std::error_code error;
  if (!fs::is_directory(root.files, error)) {
    return Error{Code::NotFound, fmt::format("the image's files are not there: {}", root.files), ""};
  }
  if (layer.empty()) {
    plan.root_ = root.files;
  } else {
    if (!is_plain(root.files) || !is_plain(layer.string())) {
      return Error{Code::FailedPrecondition, fmt::format("the kernel takes no path with a comma, a colon, a backslash or a quote for an image: {}",
                               is_plain(root.files) ? layer.string() : root.files),
                   ""};
    }
    for (const char* name : {"upper", "work", "root"}) {
      fs::create_directories(layer / name, error);
      if (error) return errno_error("make " + (layer / name).string(), error.value());
    }
    plan.root_ = layer / "root";
    plan.overlay_ = fmt::format("lowerdir={},upperdir={},workdir={}", root.files, (layer / "upper").string(), (layer / "work").string());
  }
  if (::geteuid() != 0) {
    plan.uid_map_ = fmt::format("0 {} 1", ::geteuid());
    plan.gid_map_ = fmt::format("0 {} 1", ::getegid());
    // The marks of the layer: others are root's alone.
    if (!plan.overlay_.empty()) plan.overlay_ += ",userxattr";
  }
  for (const char* path : kAlwaysShown) TRY(plan.add({path, path}, false));
  for (const char* path : kShownWhereThere) TRY(plan.add({path, path, true}, true));
  for (const ShownPath& shown : root.shown) TRY(plan.add(shown, false));
  if (layer.empty()) return plan;
  const LayerDirectories own(root.files, layer / "upper");
  for (const Bind& bind : plan.binds_) TRY(own.make(fs::path(bind.shown.path).parent_path()));
  if (!is_owned_by_other(root.files)) return plan;
  for (const char* path : kWrittenTo) TRY(own.make(path));
  return plan;
}

ImageRootPlan::Failure ImageRootPlan::become_root_of_user_namespace() const {
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return {Step::Namespace, 0, errno};
  const char deny[] = "deny";
  if (!write_text("/proc/self/setgroups", deny, sizeof deny - 1) ||
      !write_text("/proc/self/uid_map", uid_map_.data(), uid_map_.size()) ||
      !write_text("/proc/self/gid_map", gid_map_.data(), gid_map_.size())) {
    return {Step::Identity, 0, errno};
  }
  return {};
}

// In the root already: what is a link in the image leads to places of the image.
ImageRootPlan::Failure ImageRootPlan::show(size_t which, int tree) const {
  const Bind& bind = binds_[which];
  const int number = static_cast<int>(which);
  const char* const path = bind.shown.path.c_str();
  for (const std::string& parent : bind.parents) {
    if (::mkdir(parent.c_str(), 0755) != 0 && errno != EEXIST) return {Step::Place, number, errno};
  }
  if (bind.is_directory) {
    if (::mkdir(path, 0755) != 0 && errno != EEXIST) return {Step::Place, number, errno};
  } else {
    if (bind.is_optional) ::unlink(path);  // may be a link to what some service makes
    const int file = ::open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    if (file < 0 && errno != EACCES) return {Step::Place, number, errno};
    if (file >= 0) ::close(file);
  }
  if (bind.shown.read_only || bind.keeps_names) {
    const Below below = bind.shown.read_only ? Below::Too : Below::AsTheyAre;
    if (const int error = make_read_only(tree, "", below); error != 0) return {Step::Show, number, error};
  }
  if (const int error = move_mount_to(tree, path); error != 0) return {Step::Show, number, error};
  return {};
}

ImageRootPlan::Failure ImageRootPlan::enter() const {
  if (!uid_map_.empty()) {
    if (const Failure failure = become_root_of_user_namespace(); failure.error != 0) return failure;
  } else if (::unshare(CLONE_NEWNS) != 0) {
    return {Step::Namespace, 0, errno};
  }
  // What is mounted and unmounted outside is so in here too; nothing of ours gets out.
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0) return {Step::Propagation, 0, errno};
  // What is there of the host is picked up before its root is left behind.
  std::array<int, kBindsMax> trees;
  for (size_t i = 0; i < binds_.size(); ++i) {
    trees[i] = clone_mounts(binds_[i].shown.source.c_str());
    if (trees[i] < 0) return {Step::Source, static_cast<int>(i), errno};
  }
  const int mounted = overlay_.empty() ? ::mount(root_.c_str(), root_.c_str(), nullptr, MS_BIND | MS_REC, nullptr)
                                       : ::mount("overlay", root_.c_str(), "overlay", 0, overlay_.c_str());
  if (mounted != 0) return {Step::Root, 0, errno};
  if (::chdir(root_.c_str()) != 0 || ::syscall(SYS_pivot_root, ".", ".") != 0 || ::umount2(".", MNT_DETACH) != 0 ||
      ::chdir("/") != 0) {
    return {Step::Pivot, 0, errno};
  }
  for (size_t i = 0; i < binds_.size(); ++i) {
    if (const Failure failure = show(i, trees[i]); failure.error != 0 && !binds_[i].is_optional) return failure;
    ::close(trees[i]);
  }
  return {};
}

Error ImageRootPlan::explain(const Failure& failure) const {
  const auto say = [&](const std::string& what) {
    return Error{Code::FailedPrecondition, fmt::format("{}: {}", what, std::strerror(failure.error)), ""};
  };
  const auto shown = [&] { return binds_.at(static_cast<size_t>(failure.which)).shown; };
  switch (failure.step) {
    case Step::Namespace:
      return say(uid_map_.empty() ? "a mount namespace for the image" : "a user namespace for the image");
    case Step::Identity:
      return say("being root in a user namespace");
    case Step::Propagation:
      return say("keeping the image's mounts to itself");
    case Step::Root:
      return say(fmt::format("mounting the image {}", files_));
    case Step::Source:
      return say(fmt::format("showing {} in the image", shown().source));
    case Step::Pivot:
      return say(fmt::format("making {} the root", files_));
    case Step::Place:
    case Step::Show:
      return say(fmt::format("showing {} in the image as {}", shown().source, shown().path));
  }
  return say("the image");
}

Status make_in_layer(const std::string& files, const fs::path& layer, const fs::path& inside) {
  std::error_code error;
  fs::create_directories(layer / "upper", error);
  if (error) return errno_error("make " + layer.string(), error.value());
  return LayerDirectories(files, layer / "upper").make(inside);
}

void remove_layer(const fs::path& layer) {
  std::error_code error;
  fs::permissions(layer / "work" / "work", fs::perms::owner_all, error);  // the kernel leaves it closed to all
  for (auto at = fs::recursive_directory_iterator(layer / "upper", fs::directory_options::skip_permission_denied, error);
       !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    if (at->is_symlink(error) || !at->is_directory(error)) continue;
    fs::permissions(at->path(), fs::perms::owner_all, fs::perm_options::add, error);
  }
  fs::remove_all(layer, error);
}

}  // namespace dtrain::runner
