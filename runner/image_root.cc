#include "runner/image_root.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <list>
#include <system_error>

#include "runner/deletion.h"
#include "runner/mount_calls.h"

namespace dtrain::runner {
namespace fs = std::filesystem;
namespace {

// What every program takes for granted, and what names are resolved with.
constexpr const char* kDevices = "/dev";
constexpr const char* kSharedMemory = "/dev/shm";
constexpr const char* kKernelSettings = "/proc/sys";
constexpr std::array<const char*, 2> kShownWhereThere = {"/etc/resolv.conf", "/etc/hosts"};
// The kernel takes no more of a mount's options.
constexpr size_t kOptionsMax = 4'000;

bool write_text(const char* path, const char* text, size_t size) {
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool written = ::write(fd, text, size) == static_cast<ssize_t>(size);
  const int error = errno;
  ::close(fd);
  errno = error;
  return written;
}

Error not_there(const std::string& path, int error) {
  return {Code::FailedPrecondition, fmt::format("{}: {}", path, std::strerror(error)), ""};
}

}  // namespace

// Makes what is mounted on. Links of the image are followed as they lead inside it. What the image has is left as it is;
// in a layer its directories are there as the image has them, since who is not their owner could make nothing in them else.
class ImagePlaces {
 public:
  // `made_in`: the layer, or the image's files themselves.
  ImagePlaces(fs::path files, fs::path made_in) : files_(std::move(files)), made_in_(std::move(made_in)) {}

  // Where `path` leads in the image, made as a directory or an empty file if need be.
  Result<std::string> make(const fs::path& path, bool is_directory) const {
    fs::path at = "/";
    std::list<fs::path> rest(path.begin(), path.end());
    for (int links = 0; !rest.empty();) {
      const fs::path part = rest.front();
      rest.pop_front();
      if (part == "/" || part.empty() || part == ".") continue;
      if (part == "..") {
        at = at.parent_path();
        continue;
      }
      const fs::path next = at / part;
      struct stat info {};
      const bool is_there = ::lstat(inside(files_, next).c_str(), &info) == 0;
      if (is_there && S_ISLNK(info.st_mode)) {
        std::error_code error;
        const fs::path target = fs::read_symlink(inside(files_, next), error);
        if (error || ++links > kLinksMax) return not_there(next.string() + " in the image", error ? error.value() : ELOOP);
        if (target.is_absolute()) at = "/";
        rest.insert(rest.begin(), target.begin(), target.end());
        continue;
      }
      const bool as_directory = !rest.empty() || is_directory;
      if (is_there && S_ISDIR(info.st_mode) != as_directory) {
        return not_there(next.string() + " in the image", as_directory ? ENOTDIR : EISDIR);
      }
      TRY(make_one(next, as_directory, is_there ? &info : nullptr));
      at = next;
    }
    return at.string();
  }

 private:
  static constexpr int kLinksMax = 40;

  static fs::path inside(const fs::path& root, const fs::path& path) { return root / path.relative_path(); }

  Status make_one(const fs::path& path, bool as_directory, const struct stat* original) const {
    const fs::path own = inside(made_in_, path);
    if (as_directory ? ::mkdir(own.c_str(), 0755) != 0 : ::mknod(own.c_str(), S_IFREG | 0644, 0) != 0) {
      if (errno == EEXIST) return ok();
      return errno_error("make " + own.string(), errno);
    }
    if (!as_directory) return ok();
    const mode_t mode = original != nullptr ? original->st_mode & 07777 : 0755;
    ::chmod(own.c_str(), mode | (::geteuid() == 0 ? 0 : 0700));   // more is to be made in it, and in there rights bind nobody
    if (original == nullptr) return ok();
    if (::geteuid() == 0) (void)!::lchown(own.c_str(), original->st_uid, original->st_gid);
    // Not to be read by whoever is in there: it is a new one.
    if (::access(inside(files_, path).c_str(), R_OK | X_OK) != 0) (void)::setxattr(own.c_str(), "user.overlay.opaque", "y", 1, 0);
    return ok();
  }

  const fs::path files_;
  const fs::path made_in_;
};

namespace {

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

Status ImageRootPlan::add(const HostMount& shown, Access access, bool is_optional, const ImagePlaces& places) {
  struct stat info {};
  if (::stat(shown.source.c_str(), &info) != 0) return is_optional ? ok() : Status(not_there(shown.source, errno));
  if (binds_.size() == kBindsMax) {
    return Error{Code::FailedPrecondition, fmt::format("more than {} places are to be shown in an image", kBindsMax), ""};
  }
  std::string path = shown.path;
  // What is below /proc is there once that is.
  if (shown.path != kKernelSettings) {
    auto made = places.make(shown.path, S_ISDIR(info.st_mode));
    if (!made.ok() && is_optional) return ok();
    TRY(path, std::move(made));
  }
  binds_.push_back({shown.source, std::move(path), access, is_optional});
  return ok();
}

Result<ImageRootPlan> ImageRootPlan::make(const ImageRoot& root, const fs::path& layer) {
  ImageRootPlan plan;
  plan.files_ = root.files;
  std::error_code error;
  struct stat info {};
  if (::stat(root.files.c_str(), &info) != 0) return not_there(root.files, errno);
  const bool is_root = ::geteuid() == 0;
  if (!is_root) {
    plan.uid_map_ = fmt::format("0 {} 1", ::geteuid());
    plan.gid_map_ = fmt::format("0 {} 1", ::getegid());
  }
  if (layer.empty()) {
    plan.root_ = root.files;
  } else {
    if (!is_plain(root.files) || !is_plain(layer.string())) {
      return Error{Code::FailedPrecondition,
                   fmt::format("the kernel takes no path with a comma, a colon, a backslash or a quote for an image: {}",
                               is_plain(root.files) ? layer.string() : root.files),
                   ""};
    }
    for (const char* name : {"upper", "work", "root"}) {
      fs::create_directories(layer / name, error);
      if (error) return errno_error("make " + (layer / name).string(), error.value());
    }
    // What is / in there.
    if (is_root) (void)!::chown((layer / "upper").c_str(), info.st_uid, info.st_gid);
    ::chmod((layer / "upper").c_str(), (info.st_mode & 07777) | (is_root ? 0 : 0700));
    plan.root_ = layer / "root";
    // The marks of the layer: others are root's alone.
    plan.overlay_ = fmt::format("lowerdir={},upperdir={},workdir={}{}", root.files, (layer / "upper").string(),
                                (layer / "work").string(), is_root ? "" : ",userxattr");
    if (plan.overlay_.size() > kOptionsMax) return not_there(layer.string(), ENAMETOOLONG);
  }
  const ImagePlaces places(root.files, layer.empty() ? fs::path(root.files) : layer / "upper");
  TRY(plan.add({"/proc", "/proc"}, Access::Full, false, places));
  // Not even a careless root is to change the host.
  if (is_root) TRY(plan.add({kKernelSettings, kKernelSettings}, Access::ReadOnly, true, places));
  TRY(plan.add({"/sys", "/sys"}, Access::ReadOnly, false, places));
  const bool has_shared_memory_apart = is_mounted_apart(kSharedMemory, kDevices);
  TRY(plan.add({kDevices, kDevices}, has_shared_memory_apart ? Access::NamesOnly : Access::Full, false, places));
  for (const char* path : kShownWhereThere) TRY(plan.add({path, path}, Access::ReadOnly, true, places));
  for (const HostMount& shown : root.shown) {
    TRY(plan.add(shown, shown.read_only ? Access::ReadOnly : Access::Full, false, places));
  }
  if (layer.empty() || !is_owned_by_other(root.files)) return plan;
  for (const char* path : kWrittenTo) TRY(places.make(path, true));
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

ImageRootPlan::Failure ImageRootPlan::show(size_t which, int tree) const {
  const Bind& bind = binds_[which];
  const int number = static_cast<int>(which);
  if (bind.access != Access::Full) {
    const Below below = bind.access == Access::ReadOnly ? Below::Too : Below::AsTheyAre;
    if (const int error = make_read_only(tree, "", below); error != 0) return {Step::Show, number, error};
  }
  if (const int error = move_mount_to(tree, bind.path.c_str()); error != 0) return {Step::Show, number, error};
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
    trees[i] = clone_mounts(binds_[i].source.c_str());
    if (trees[i] < 0 && !binds_[i].is_optional) return {Step::Source, static_cast<int>(i), errno};
  }
  const int mounted = overlay_.empty() ? ::mount(root_.c_str(), root_.c_str(), nullptr, MS_BIND | MS_REC, nullptr)
                                       : ::mount("overlay", root_.c_str(), "overlay", 0, overlay_.c_str());
  if (mounted != 0) return {Step::Root, 0, errno};
  if (::chdir(root_.c_str()) != 0 || ::syscall(SYS_pivot_root, ".", ".") != 0 || ::umount2(".", MNT_DETACH) != 0 ||
      ::chdir("/") != 0) {
    return {Step::Pivot, 0, errno};
  }
  for (size_t i = 0; i < binds_.size(); ++i) {
    if (trees[i] < 0) continue;
    if (const Failure failure = show(i, trees[i]); failure.error != 0 && !binds_[i].is_optional) return failure;
    ::close(trees[i]);
  }
  return {};
}

Error ImageRootPlan::explain(const Failure& failure) const {
  // What there is too little of may be there later.
  const auto say = [&](const std::string& what) {
    Error error = errno_error(what, failure.error);
    if (error.code == Code::ResourceExhausted) return error;
    return Error{Code::FailedPrecondition, fmt::format("{}: {}", what, std::strerror(failure.error)), ""};
  };
  const auto shown = [&] { return binds_.at(static_cast<size_t>(failure.which)); };
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
    case Step::Show:
      return say(fmt::format("showing {} in the image as {}{}", shown().source, shown().path,
                             failure.error == ENOENT ? ", which another mount covers" : ""));
  }
  return say("the image");
}

Status make_in_layer(const std::string& files, const fs::path& layer, const fs::path& inside) {
  std::error_code error;
  fs::create_directories(layer / "upper", error);
  if (error) return errno_error("make " + layer.string(), error.value());
  TRY(ImagePlaces(files, layer / "upper").make(inside, true));
  return ok();
}

void remove_layer(const fs::path& layer) {
  const std::atomic<bool> never = false;
  (void)delete_deeply(layer, never);
}

}  // namespace dtrain::runner
