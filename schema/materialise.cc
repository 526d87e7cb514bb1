#include "schema/materialise.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <memory>

#include "schema/beneath.h"
#include "schema/quote.h"

namespace dtrain {

namespace {

Error failed(std::string_view what, std::string_view path) {
  const int error = errno;
  return errno_error(fmt::format("{} {}", what, in_quotes(path)), error);
}

// Takes over `directory`.
Status empty_directory(Fd directory) {
  const int fd = directory.get();
  std::unique_ptr<DIR, int (*)(DIR*)> listing(::fdopendir(fd), ::closedir);
  if (!listing) return errno_error("list a directory", errno);
  directory.release();
  while (const dirent* item = ::readdir(listing.get())) {
    const char* name = item->d_name;
    if (std::string_view(name) == "." || std::string_view(name) == "..") continue;
    if (::unlinkat(fd, name, 0) == 0) continue;
    if (errno != EISDIR && errno != EPERM) return failed("remove", name);
    struct stat st {};
    if (::fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0) return failed("look at", name);
    if (is_mount_point(fd, name)) {
      return Error{Code::FailedPrecondition,
                   fmt::format("remove {}: something is mounted there", in_quotes(name)),
                   "unmount it; what it holds is left alone"};
    }
    Fd below(::openat(fd, name, kOpenDirectory));
    if (!below && errno == EACCES && ::fchmodat(fd, name, 0700, 0) == 0) {
      below = Fd(::openat(fd, name, kOpenDirectory));
    }
    if (!below) return failed("open", name);
    if ((st.st_mode & 0700) != 0700) ::fchmod(below.get(), 0700);
    TRY(empty_directory(std::move(below)));
    if (::unlinkat(fd, name, AT_REMOVEDIR) != 0) return failed("remove", name);
  }
  return ok();
}

}  // namespace

Result<TreeWriter> TreeWriter::begin(const pb::Manifest& manifest,
                                     const std::filesystem::path& target) {
  if (::mkdir(target.c_str(), 0700) != 0) return failed("create", target.native());
  TreeWriter tree(manifest, Fd(::open(target.c_str(), kOpenDirectory)));
  if (!tree.root_) return failed("open", target.native());
  for (const pb::Entry& entry : manifest.entry()) {
    if (entry.kind() == pb::Entry::FILE) continue;
    TRY(const int parent, tree.parent_of(entry.path()));
    const char* name = base_name(entry.path());
    // finish() gives a directory the mode it should have: until then it must be written to.
    const int made = entry.kind() == pb::Entry::DIRECTORY
                         ? ::mkdirat(parent, name, 0700)
                         : ::symlinkat(entry.target().c_str(), parent, name);
    if (made != 0) return failed("create", entry.path());
  }
  return tree;
}

Result<int> TreeWriter::parent_of(std::string_view path) {
  const std::string_view parent = parent_path(path);
  if (parent.empty()) return root_.get();
  if (!parent_ || parent != parent_path_) {
    TRY(parent_, open_below(root_.get(), parent));
    parent_path_ = parent;
  }
  return parent_.get();
}

Result<Fd> TreeWriter::create_file(const pb::Entry& entry) {
  TRY(const int parent, parent_of(entry.path()));
  Fd file(::openat(parent, base_name(entry.path()),
                   O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return failed("create", entry.path());
  // Not at creation: the process's umask has no say in what a snapshot holds.
  if (::fchmod(file.get(), entry.mode()) != 0) return failed("set the mode of", entry.path());
  return file;
}

Result<bool> TreeWriter::link_file(const pb::Entry& entry, int existing_dir, const char* existing) {
  TRY(const int parent, parent_of(entry.path()));
  if (::linkat(existing_dir, existing, parent, base_name(entry.path()), 0) == 0) return true;
  if (errno == EEXIST) return failed("create", entry.path());
  return false;
}

Status TreeWriter::finish() {
  // Children before parents: a parent may end up without the permission to go below it.
  for (int i = manifest_->entry_size() - 1; i >= 0; --i) {
    const pb::Entry& entry = manifest_->entry(i);
    if (entry.kind() != pb::Entry::DIRECTORY) continue;
    if (entry.mode() == 0700) continue;
    TRY(const int parent, parent_of(entry.path()));
    if (::fchmodat(parent, base_name(entry.path()), entry.mode(), 0) != 0) {
      return failed("set the mode of", entry.path());
    }
  }
  if (::fchmod(root_.get(), 0755) != 0) return failed("set the mode of", "the tree");
  return ok();
}

namespace {

Status write_tree(const pb::Manifest& manifest, const std::filesystem::path& target,
                  const std::function<Status(const Sha256&, uint64_t size, int fd)>& blob) {
  TRY(TreeWriter tree, TreeWriter::begin(manifest, target));
  for (const pb::Entry& entry : manifest.entry()) {
    if (entry.kind() != pb::Entry::FILE) continue;
    TRY(const Sha256 name, sha256_from_bytes(entry.sha256()));
    TRY(const Fd file, tree.create_file(entry));
    if (auto written = blob(name, entry.size(), file.get()); !written.ok()) {
      return std::move(written).error().with_context(in_quotes(entry.path()));
    }
  }
  return tree.finish();
}

}  // namespace

Status materialise(const pb::Manifest& manifest, const std::filesystem::path& target,
                   const std::function<Status(const Sha256&, uint64_t size, int fd)>& blob) {
  struct stat st {};
  if (::lstat(target.c_str(), &st) == 0) {
    return Error{Code::AlreadyExists, fmt::format("create {}: it exists", target.native()), ""};
  }
  Status written = write_tree(manifest, target, blob);
  if (!written.ok()) (void)remove_tree(target).ok();
  return written;
}

Status remove_tree(const std::filesystem::path& path) {
  struct stat st {};
  if (::lstat(path.c_str(), &st) != 0) {
    return errno == ENOENT ? ok() : Status(failed("look at", path.native()));
  }
  if (!S_ISDIR(st.st_mode)) {
    return ::unlink(path.c_str()) == 0 ? ok() : Status(failed("remove", path.native()));
  }
  if ((st.st_mode & 0700) != 0700) ::chmod(path.c_str(), 0700);
  Fd directory(::open(path.c_str(), kOpenDirectory));
  if (!directory) return failed("open", path.native());
  if (auto emptied = empty_directory(std::move(directory)); !emptied.ok()) {
    return std::move(emptied).error().with_context(path.native());
  }
  return ::rmdir(path.c_str()) == 0 ? ok() : Status(failed("remove", path.native()));
}

bool is_mount_point(int directory, const char* name) {
  struct statx found {};
  return ::statx(directory, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_TYPE, &found) == 0 &&
         (found.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

}  // namespace dtrain
