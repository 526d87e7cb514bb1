#include "schema/output_tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>

#include "schema/beneath.h"
#include "schema/listing.h"
#include "schema/manifest.h"
#include "schema/materialise.h"
#include "schema/quote.h"
#include "schema/random_id.h"
#include "schema/write_all.h"

namespace dtrain {
namespace {

// O_NONBLOCK: what was a file a moment ago may have become a pipe.
constexpr int kOpenOutput = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
constexpr std::string_view kOfOneHost = ".dtrain-", kUnnamed = ".dtrain-unnamed-";
constexpr size_t kOutputPathMax = 16 << 10, kDepthMax = 256;
constexpr time_t kSecondsMax = 9'000'000'000;   // of a time in nanoseconds
constexpr size_t kLinkMax = 4096;
constexpr mode_t kOwnerReads = 0600, kOwnerEnters = 0700;   // whoever made it: both sides are to read it again

Error failed_at(std::string_view what, std::string_view path) {
  const int error = errno;
  Error told = errno_error(fmt::format("{} {}", what, in_quotes(path)), error);
  if (error == ENOTDIR || error == ELOOP) told.code = Code::NotFound;
  if (error == ENAMETOOLONG || error == EINVAL || error == EFBIG) told.code = Code::InvalidArgument;
  return told;
}

Error is_no_output(std::string_view path, std::string_view why) {
  return {Code::InvalidArgument, fmt::format("{} {}", in_quotes(path), why), ""};
}

Status check_path(std::string_view path) {
  if (path.empty() || path.find('\0') != path.npos) return is_no_output(path, "is no path");
  if (path.size() > kOutputPathMax || std::ranges::count(path, '/') >= static_cast<std::ptrdiff_t>(kDepthMax)) {
    return is_no_output(path.substr(0, 100), "and so on lies too deep");
  }
  for (size_t start = 0; start <= path.size();) {
    const size_t end = std::min(path.find('/', start), path.size());
    const std::string_view part = path.substr(start, end - start);
    if (part.empty() || part == "." || part == "..") return is_no_output(path, "is no path of a file");
    start = end + 1;
  }
  if (path.starts_with(kOfOneHost)) return is_no_output(path, "is a name of dtrain's own");
  return ok();
}

// What is before a ".." may be a link itself, and lead anywhere.
bool turns_back(std::string_view target) {
  bool went_down = false;
  for (size_t start = 0; start <= target.size();) {
    const size_t end = std::min(target.find('/', start), target.size());
    const std::string_view part = target.substr(start, end - start);
    if (part == ".." && went_down) return true;
    went_down = went_down || (!part.empty() && part != "." && part != "..");
    start = end + 1;
  }
  return false;
}

Status check_link(const pb::OutputEntry& entry) {
  const std::string& target = entry.target();
  if (target.empty() || target.size() >= kLinkMax || target.find('\0') != target.npos) {
    return is_no_output(entry.path(), "is a link to nowhere");
  }
  if (target.starts_with('/') || turns_back(target) || leaves_tree(entry.path(), target)) {
    return is_no_output(entry.path(), "is a link that leads out");
  }
  return ok();
}

Result<std::string> read_link(int parent, const char* name) {
  std::string target(kLinkMax, '\0');
  const ssize_t got = ::readlinkat(parent, name, target.data(), target.size());
  if (got < 0) return failed_at("read the link", name);
  target.resize(static_cast<size_t>(got));
  return target;
}

// All but the target of a link.
Result<pb::OutputEntry> output_entry(const struct stat& st, std::string path) {
  pb::OutputEntry entry;
  entry.set_path(std::move(path));
  if (S_ISDIR(st.st_mode)) {
    entry.set_kind(pb::Entry::DIRECTORY);
    entry.set_mode((st.st_mode & 0777) | kOwnerEnters);
  } else if (S_ISREG(st.st_mode)) {
    entry.set_kind(pb::Entry::FILE);
    entry.set_mode((st.st_mode & 0777) | kOwnerReads);
    entry.set_size(static_cast<uint64_t>(st.st_size));
    entry.set_mtime_ns(std::clamp(st.st_mtim.tv_sec, -kSecondsMax, kSecondsMax) * 1'000'000'000 + st.st_mtim.tv_nsec);
  } else if (S_ISLNK(st.st_mode)) {
    entry.set_kind(pb::Entry::SYMLINK);
  } else {
    return is_no_output(entry.path(), "is no file");
  }
  return entry;
}

Result<pb::OutputEntry> output_entry(int parent, const char* name, std::string path) {
  struct stat st {};
  if (::fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) != 0) return failed_at("look at", path);
  TRY(pb::OutputEntry entry, output_entry(st, std::move(path)));
  if (entry.kind() == pb::Entry::SYMLINK) {
    TRY(*entry.mutable_target(), read_link(parent, name));
    TRY(check_link(entry));
  }
  return entry;
}

// In place of what is there: a directory with all that is in it.
Status put_in_place(int from, const char* unnamed, int parent, const std::string& path) {
  const char* name = base_name(path);
  if (::renameat(from, unnamed, parent, name) == 0) return ok();
  if (errno != EISDIR && errno != ENOTEMPTY && errno != EEXIST) return failed_at("name", path);
  TRY(remove_tree(fmt::format("/proc/self/fd/{}/{}", parent, name)));
  return ::renameat(from, unnamed, parent, name) == 0 ? ok() : Status(failed_at("name", path));
}

// The directory that `path` is in; what is in its way is removed.
Result<Fd> parent_for(int root, const std::string& path) {
  auto place = make_below(root, parent_path(path));
  if (place.ok() || place.error().code != Code::NotFound) return place;
  for (size_t end = path.find('/'); end != path.npos; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    TRY(const Fd parent, open_below(root, parent_path(part)));
    struct stat st {};
    if (::fstatat(parent.get(), base_name(part), &st, AT_SYMLINK_NOFOLLOW) != 0 || S_ISDIR(st.st_mode)) continue;
    if (::unlinkat(parent.get(), base_name(part), 0) != 0) return failed_at("remove", part);
    break;
  }
  return make_below(root, parent_path(path));
}

// By which a process knows its own.
const std::string& own_mark() {
  static const std::string mark = [] {
    const auto id = random_id();
    return id.ok() ? *id : std::to_string(::getpid());
  }();
  return mark;
}

Result<std::string> unnamed() {
  TRY(const std::string id, random_id());
  return fmt::format("{}{}-{}", kUnnamed, own_mark(), id);
}

// A link to what has no name can't replace anything: from there it is renamed.
Result<std::string> link_under_any_name(int root, int file) {
  TRY(std::string name, unnamed());
  const std::string itself = fmt::format("/proc/self/fd/{}", file);
  if (::linkat(AT_FDCWD, itself.c_str(), root, name.c_str(), AT_SYMLINK_FOLLOW) != 0) return failed_at("name", "a file");
  return name;
}

}  // namespace

bool same_output(const pb::OutputEntry& a, const pb::OutputEntry& b) {
  if (a.kind() != b.kind()) return false;
  if (a.kind() == pb::Entry::SYMLINK) return a.target() == b.target();
  if (a.kind() == pb::Entry::DIRECTORY) return true;
  return a.size() == b.size() && a.mtime_ns() == b.mtime_ns() && a.mode() == b.mode();
}

UnnamedOutput::~UnnamedOutput() {
  if (file_ && !name_.empty()) ::unlinkat(root_, name_.c_str(), 0);
}

Status UnnamedOutput::append(std::string_view data) {
  size_ += data.size();
  const int failed = write_all(file_.get(), data);
  return failed == 0 ? ok() : Status(errno_error("can't write a file", failed));
}

Status UnnamedOutput::give_name(const pb::OutputEntry& entry) {
  TRY(check_path(entry.path()));
  if (size_ != entry.size()) return is_no_output(entry.path(), fmt::format("came with {} bytes of {}", size_, entry.size()));
  TRY(const Fd parent, parent_for(root_, entry.path()));
  if (::fchmod(file_.get(), (entry.mode() & 0777) | kOwnerReads) != 0) return failed_at("set the mode of", entry.path());
  constexpr int64_t kSecond = 1'000'000'000;
  const int64_t part_ns = (entry.mtime_ns() % kSecond + kSecond) % kSecond;   // of times before 1970, too
  const timespec time{(entry.mtime_ns() - part_ns) / kSecond, part_ns};
  const timespec times[] = {time, time};
  if (::futimens(file_.get(), times) != 0) return failed_at("set the time of", entry.path());
  if (name_.empty()) {
    TRY(name_, link_under_any_name(root_, file_.get()));
  }
  TRY(put_in_place(root_, name_.c_str(), parent.get(), entry.path()));
  name_.clear();
  return ok();
}

Result<OutputTree> OutputTree::open(const std::filesystem::path& directory) {
  Fd root(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root) return failed_at("open", directory.native());
  return OutputTree(std::move(root));
}

Result<std::vector<pb::OutputEntry>> OutputTree::list(std::vector<LeftOut>* left_out) const {
  std::vector<pb::OutputEntry> entries;
  std::deque<std::string> waiting{""};   // directories, each before those in it
  Listing names;
  for (; !waiting.empty(); waiting.pop_front()) {
    const std::string& path = waiting.front();
    const auto directory = open_below(root_.get(), path);
    if (!directory.ok() && directory.error().code == Code::NotFound) continue;   // since it was listed
    if (!directory.ok() && directory.error().code == Code::PermissionDenied && !path.empty()) {
      if (left_out != nullptr) left_out->push_back({path, directory.error().message});
      continue;
    }
    if (!directory.ok()) return directory.error();
    TRY(names.read(directory->get()));
    for (size_t i = 0; i < names.size(); ++i) {
      const bool at_top = path.empty();
      if (at_top && names.view(i).starts_with(kOfOneHost)) continue;
      std::string inner = at_top ? std::string(names.view(i)) : path + '/' + names.name(i);
      const Status named = check_path(inner);
      auto entry = named.ok() ? output_entry(directory->get(), names.name(i), inner) : Result<pb::OutputEntry>(named.error());
      if (!entry.ok() && entry.error().code == Code::NotFound) continue;
      if (!entry.ok() && entry.error().code == Code::InvalidArgument) {
        if (left_out != nullptr) left_out->push_back({std::move(inner), entry.error().message});
        continue;
      }
      TRY(pb::OutputEntry found, std::move(entry));
      if (found.kind() == pb::Entry::DIRECTORY) waiting.push_back(found.path());
      entries.push_back(std::move(found));
    }
  }
  std::ranges::sort(entries, {}, &pb::OutputEntry::path);
  return entries;
}

Result<pb::OutputEntry> OutputTree::look(const std::string& path) const {
  TRY(check_path(path));
  TRY(const Fd parent, open_below(root_.get(), parent_path(path)));
  auto entry = output_entry(parent.get(), base_name(path), path);
  if (!entry.ok() && entry.error().code == Code::InvalidArgument) entry.error().code = Code::NotFound;
  return entry;
}

Result<OutputTree::OpenFile> OutputTree::open_file(const std::string& path) const {
  TRY(check_path(path));
  TRY(const Fd parent, open_below(root_.get(), parent_path(path)));
  OpenFile file{Fd(::openat(parent.get(), base_name(path), kOpenOutput)), {}};
  if (!file.fd) return failed_at("open", path);
  struct stat st {};
  if (::fstat(file.fd.get(), &st) != 0) return failed_at("look at", path);
  if (!S_ISREG(st.st_mode)) return Error{Code::NotFound, fmt::format("{} is no file", in_quotes(path)), ""};
  TRY(file.entry, output_entry(st, path));
  return file;
}

Result<UnnamedOutput> OutputTree::create() const {
  if (Fd file(::openat(root_.get(), ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600)); file) {
    return UnnamedOutput(root_.get(), std::move(file), "");
  }
  TRY(std::string name, unnamed());
  Fd file(::openat(root_.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return failed_at("create", "a file");
  return UnnamedOutput(root_.get(), std::move(file), std::move(name));
}

Status OutputTree::make(const pb::OutputEntry& entry) const {
  TRY(check_path(entry.path()));
  TRY(const Fd parent, parent_for(root_.get(), entry.path()));
  const char* name = base_name(entry.path());
  if (entry.kind() == pb::Entry::DIRECTORY) {
    for (const mode_t mode = (entry.mode() & 0777) | kOwnerEnters;;) {
      if (::mkdirat(parent.get(), name, mode) == 0) return ok();
      struct stat st {};
      if (errno != EEXIST || ::fstatat(parent.get(), name, &st, AT_SYMLINK_NOFOLLOW) != 0) return failed_at("make", entry.path());
      if (S_ISDIR(st.st_mode)) return ok();
      if (::unlinkat(parent.get(), name, 0) != 0) return failed_at("remove", entry.path());
    }
  }
  if (entry.kind() != pb::Entry::SYMLINK) return is_no_output(entry.path(), "came without what is in it");
  TRY(check_link(entry));
  TRY(const std::string link, unnamed());
  if (::symlinkat(entry.target().c_str(), root_.get(), link.c_str()) != 0) return failed_at("make the link", entry.path());
  const Status placed = put_in_place(root_.get(), link.c_str(), parent.get(), entry.path());
  if (!placed.ok()) ::unlinkat(root_.get(), link.c_str(), 0);
  return placed;
}

Status OutputTree::remove(const pb::OutputEntry& entry) const {
  const auto found = look(entry.path());
  if (!found.ok()) return found.error().code == Code::NotFound ? ok() : Status(found.error());
  if (!same_output(*found, entry)) return ok();
  TRY(const Fd parent, open_below(root_.get(), parent_path(entry.path())));
  const int flags = entry.kind() == pb::Entry::DIRECTORY ? AT_REMOVEDIR : 0;
  if (::unlinkat(parent.get(), base_name(entry.path()), flags) == 0) return ok();
  return errno == ENOENT || errno == ENOTEMPTY || errno == EEXIST ? ok() : Status(failed_at("remove", entry.path()));
}

void OutputTree::remove_unnamed() const {
  Listing names;
  if (!names.read(root_.get()).ok()) return;
  const std::string own = fmt::format("{}{}", kUnnamed, own_mark());
  for (size_t i = 0; i < names.size(); ++i) {
    if (names.view(i).starts_with(kUnnamed) && !names.view(i).starts_with(own)) ::unlinkat(root_.get(), names.name(i), 0);
  }
}

Status OutputTree::sync() const {
  return ::syncfs(root_.get()) == 0 ? ok() : Status(failed_at("sync", "outputs"));
}

}  // namespace dtrain
