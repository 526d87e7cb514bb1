#include "runner/workdir.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <map>
#include <system_error>
#include <vector>

#include "runner/file_copy.h"
#include "schema/fd.h"
#include "schema/listing.h"
#include "schema/materialise.h"
#include "schema/quote.h"
#include "schema/size_text.h"

namespace dtrain::runner {

namespace fs = std::filesystem;

namespace {


fs::path project_of(const fs::path& place) {
  return place / "project";
}
fs::path upper_of(const fs::path& place) {
  return place / "upper";
}

fs::path copied_of(const fs::path& place) {
  return place / ".copied";
}

std::optional<WorkdirKind> parse_kind(std::string_view word) {
  for (const auto kind : {WorkdirKind::Overlay, WorkdirKind::Reflink, WorkdirKind::Copy}) {
    if (word == to_string(kind)) return kind;
  }
  return std::nullopt;
}

// ---- making

Status create(const fs::path& path) {
  if (::mkdir(path.c_str(), 0755) == 0) return ok();
  return errno_error("create " + path.native(), errno);
}

Status make_place(const fs::path& place) {
  if (::mkdir(place.c_str(), 0755) != 0) {
    if (errno != ENOENT) return errno_error("create " + place.native(), errno);
    std::error_code failed;
    fs::create_directories(place.parent_path(), failed);
    if (failed) return errno_error("create " + place.parent_path().native(), failed.value());
    TRY(create(place));
  }
  return create(project_of(place));
}

Status mount_overlay(const fs::path& tree, const fs::path& place) {
  const fs::path upper = upper_of(place);
  const fs::path work = place / "work";
  const std::string paths = fmt::format("lowerdir={},upperdir={},workdir={}", tree.native(),
                                        upper.native(), work.native());
  // The kernel splits its options at these; a home with such a name gets copies.
  if ((tree.native() + place.native()).find_first_of(",:\\\"") != std::string::npos) {
    return Error{Code::Unimplemented, "an overlay can't lie under such a path", ""};
  }
  TRY(create(upper));
  TRY(create(work));
  // redirect_dir: without it a program can't rename a directory of its snapshot.
  const std::string options = paths + ",index=off,metacopy=off,redirect_dir=on";
  const fs::path target = project_of(place);
  if (::mount("overlay", target.c_str(), "overlay", 0, options.c_str()) == 0) return ok();
  if (::mount("overlay", target.c_str(), "overlay", 0, paths.c_str()) == 0) return ok();
  const Error error = errno_error("mount an overlay", errno);
  ::rmdir(work.c_str());
  ::rmdir(upper.c_str());
  return error;
}

Result<WorkdirKind> copy_tree(const fs::path& tree, const fs::path& place, CopyKind kind) {
  const Fd from(::open(tree.c_str(), kOpenDirectory));
  const Fd to(::open(project_of(place).c_str(), kOpenDirectory));
  if (!from || !to) return errno_error("open " + tree.native(), errno);
  // By the clock that gives files their times, which may be another host's, and is compared with them.
  const Fd copied(::open(copied_of(place).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  if (!copied) return errno_error("create " + copied_of(place).native(), errno);
  TRY(const bool shared, copy_directory(from.get(), to.get(), kind));
  if (::fchmod(copied.get(), 0400) != 0) return errno_error("change " + copied_of(place).native(), errno);
  return shared && kind != CopyKind::Bytes ? WorkdirKind::Reflink : WorkdirKind::Copy;
}

// Up to this much costs fewer inodes as a copy.
constexpr int kSmallTreeFiles = 16;
constexpr int64_t kSmallTreeBytes = 256 << 10;

// Only regular files at the top, few and short.
bool looks_small(const fs::path& tree) {
  const Fd directory(::open(tree.c_str(), kOpenDirectory));
  Listing names;
  if (!directory || !names.read(directory.get()).ok() || names.size() > kSmallTreeFiles) return false;
  int64_t bytes = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    struct stat st {};
    if (::fstatat(directory.get(), names.name(i), &st, AT_SYMLINK_NOFOLLOW) != 0) return false;
    if (!S_ISREG(st.st_mode)) return false;
    bytes += st.st_size;
  }
  return bytes <= kSmallTreeBytes;
}

Result<WorkdirKind> fill_view(const ViewSource& source, const fs::path& place,
                              std::optional<WorkdirKind> only) {
  const fs::path& tree = source.tree();
  if (!only && source.is_small()) return copy_tree(tree, place, CopyKind::CloneOrBytes);
  if (only == WorkdirKind::Reflink) return copy_tree(tree, place, CopyKind::Clone);
  if (only == WorkdirKind::Copy) return copy_tree(tree, place, CopyKind::Bytes);
  const Status mounted = mount_overlay(tree, place);
  if (mounted.ok()) return WorkdirKind::Overlay;
  if (only) return mounted.error();
  return copy_tree(tree, place, CopyKind::CloneOrBytes);
}

}  // namespace

std::string_view to_string(WorkdirKind kind) {
  switch (kind) {
    case WorkdirKind::Overlay:
      return "overlay";
    case WorkdirKind::Reflink:
      return "reflink";
    case WorkdirKind::Copy:
      return "copy";
  }
  return "?";
}

ViewSource::ViewSource(fs::path tree) : tree_(std::move(tree)), small_(looks_small(tree_)) {}

Result<Workdir> make_view(const ViewSource& source, const fs::path& place,
                          std::optional<WorkdirKind> only) {
  if (const char* wanted = std::getenv("DTRAIN_WORKDIR"); !only && wanted != nullptr) {
    only = parse_kind(wanted);
    if (!only) {
      return Error{Code::InvalidArgument, fmt::format("DTRAIN_WORKDIR={}", in_quotes(wanted)),
                   "one of: overlay, reflink, copy"};
    }
  }
  TRY(make_place(place));
  Result<WorkdirKind> kind = fill_view(source, place, only);
  if (!kind.ok()) {
    (void)release_view(place).ok();
    return std::move(kind).error().with_context("work directory " + place.native());
  }
  return Workdir{project_of(place), *kind};
}

Result<Workdir> make_empty_view(const fs::path& place) {
  TRY(make_place(place));
  return Workdir{project_of(place), WorkdirKind::Copy};
}

// ---- ending

Status unmount_view(const fs::path& place) {
  const fs::path project = project_of(place);
  // Until it is no mount point any more: whoever was there before may have mounted twice.
  while (::umount2(project.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0) {
  }
  // EPERM: who may not unmount could not mount either.
  if (errno == EINVAL || errno == ENOENT || errno == EPERM) return ok();
  return errno_error("unmount " + project.native(), errno);
}

Status release_view(const fs::path& place) {
  TRY(unmount_view(place));
  return remove_tree(place);
}

namespace {

// Says nothing of the tree, which must not count as gone then.
bool is_shortage(int errno_value) {
  return errno_error("", errno_value).code == Code::ResourceExhausted;
}

int64_t in_ns(const timespec& time) {
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

// When files of a copy were last changed by those who made it: nobody set the clock meanwhile, or the copy
// counts as changed. Nothing where none was made.
struct Copied {
  int64_t begin_ns = 1, end_ns = 0;
  bool has(const struct stat& st) const { return begin_ns <= in_ns(st.st_ctim) && in_ns(st.st_ctim) <= end_ns; }
};

Result<Copied> read_copied(const fs::path& place) {
  struct stat st {};
  if (::stat(copied_of(place).c_str(), &st) == 0) return Copied{in_ns(st.st_mtim), in_ns(st.st_ctim)};
  if (errno == ENOENT) return Copied{};
  return errno_error("look at " + copied_of(place).native(), errno);
}

// Sums what is left by the names at the top of the work directory, and lists it for whoever wants it.
class LeftBehind {
 public:
  LeftBehind(const Copied& copied, const std::set<std::string>& taken, std::vector<LeftFiles::File>* files = nullptr)
      : copied_(copied), taken_(taken), files_(files) {}

  // `original`: the tree a copy was made from, else -1: everything below `directory` counts.
  // `path`: of `directory`, empty or with a slash at its end.
  Status add(int directory, int original, const std::string& path) {
    Listing names;
    TRY(names.read(directory));
    for (size_t i = 0; i < names.size(); ++i) {
      if (names.view(i) == "__pycache__") continue;  // nobody misses that
      TRY(add_name(directory, original, names.name(i), path));
    }
    return ok();
  }

  std::string text() const {
    if (bytes_.empty()) return "";
    std::vector<std::pair<std::string, uint64_t>> sorted(bytes_.begin(), bytes_.end());
    std::sort(sorted.begin(), sorted.end(),
              [](const auto& a, const auto& b) { return a.second > b.second; });
    constexpr size_t kShown = 3;
    uint64_t total = 0;
    std::string where;
    for (size_t i = 0; i < sorted.size(); ++i) {
      total += sorted[i].second;
      if (i < kShown) where += (i == 0 ? "" : ", ") + sorted[i].first;
    }
    if (sorted.size() > kShown) where += fmt::format(" and {} more", sorted.size() - kShown);
    return fmt::format("{} in {}", size_text(total), where);
  }

 private:
  Status add_name(int directory, int original, const char* name, const std::string& path) {
    const std::string whole = path + name;
    if (taken_.contains(whole)) return ok();
    struct stat st {};
    if (::fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
      return errno == ENOENT ? ok() : Status(errno_error(fmt::format("look at {}", name), errno));
    }
    if (S_ISDIR(st.st_mode)) {
      // What is mounted is not of the work directory, and may be large or far away.
      if (is_mount_point(directory, name)) {
        bytes_.try_emplace(top_of(whole + '/'));
        return ok();
      }
      const Fd below(::openat(directory, name, kOpenDirectory));
      if (!below) return errno_error(fmt::format("open {}", name), errno);
      const Fd original_below(original < 0 ? -1 : ::openat(original, name, kOpenDirectory));
      if (original >= 0 && !original_below && is_shortage(errno)) {
        return errno_error(fmt::format("open the original of {}", name), errno);
      }
      return add(below.get(), original_below.get(), whole + '/');
    }
    // An overlay marks deleted names with devices.
    if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode)) return ok();
    struct stat before {};
    const bool was_there = original >= 0 && ::fstatat(original, name, &before, AT_SYMLINK_NOFOLLOW) == 0 && before.st_size == st.st_size;
    if (copied_.has(st) && (original < 0 ? files_ != nullptr : was_there)) return ok();
    if (S_ISREG(st.st_mode)) bytes_[top_of(whole)] += static_cast<uint64_t>(st.st_size);   // links weigh nothing
    if (files_ == nullptr) return ok();
    LeftFiles::File file{whole, static_cast<uint64_t>(st.st_size)};
    std::array<char, PATH_MAX> target;
    const ssize_t got = S_ISLNK(st.st_mode) ? ::readlinkat(directory, name, target.data(), target.size()) : 0;
    if (got > 0) file.link_to.assign(target.data(), static_cast<size_t>(got));
    files_->push_back(std::move(file));
    return ok();
  }

  static std::string top_of(const std::string& path) {
    const size_t slash = path.find('/');
    return slash == std::string::npos ? path : path.substr(0, slash + 1);
  }

  const Copied copied_;
  const std::set<std::string>& taken_;
  std::vector<LeftFiles::File>* const files_;
  std::map<std::string, uint64_t> bytes_;
};

}  // namespace

Result<std::string> left_behind(const fs::path& place, const fs::path& tree,
                                const std::set<std::string>& taken) {
  const Fd upper(::open(upper_of(place).c_str(), kOpenDirectory));
  if (!upper && errno != ENOENT) return errno_error("open " + upper_of(place).native(), errno);
  const Fd project(upper ? -1 : ::open(project_of(place).c_str(), kOpenDirectory));
  if (!upper && !project && errno == ENOENT) return std::string();
  if (!upper && !project) return errno_error("open " + project_of(place).native(), errno);
  const Fd original(upper || tree.empty() ? -1 : ::open(tree.c_str(), kOpenDirectory));
  if (!upper && !tree.empty() && !original && is_shortage(errno)) {
    return errno_error("open " + tree.native(), errno);
  }
  TRY(const Copied copied, read_copied(place));
  LeftBehind left(copied, taken);
  TRY(left.add(upper ? upper.get() : project.get(), original.get(), ""));
  return left.text();
}

Result<LeftFiles> left_files(const fs::path& place) {
  std::error_code error;
  LeftFiles left;
  left.folder = fs::is_directory(upper_of(place), error) ? upper_of(place) : project_of(place);
  const Fd folder(::open(left.folder.c_str(), kOpenDirectory));
  if (!folder) return errno_error("open " + left.folder.native(), errno);
  TRY(const Copied copied, read_copied(place));
  const std::set<std::string> none;
  LeftBehind all(copied, none, &left.files);
  TRY(all.add(folder.get(), -1, ""));
  std::ranges::sort(left.files, {}, &LeftFiles::File::path);
  return left;
}

}  // namespace dtrain::runner
