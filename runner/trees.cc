#include "runner/trees.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <system_error>

#include "runner/tree_note.h"
#include "schema/clock.h"
#include "schema/file_hash.h"
#include "schema/manifest.h"

namespace dtrain::runner {

namespace fs = std::filesystem;

namespace {

// Says nothing of a tree, which may be in use.
bool is_shortage(const Error& error) {
  return error.code == Code::ResourceExhausted;
}

// Whether the files below `tree` still are what the manifest says.
Result<bool> is_whole(const fs::path& tree, std::string_view manifest) {
  FileHash hash({});
  for (ManifestEntry entry; read_entry(manifest, entry);) {
    const fs::path path = tree / entry.path;
    struct stat st {};
    if (::lstat(path.c_str(), &st) != 0) return false;
    if (entry.kind == pb::Entry::DIRECTORY && !S_ISDIR(st.st_mode)) return false;
    if (entry.kind == pb::Entry::SYMLINK) {
      std::error_code failed;
      if (!S_ISLNK(st.st_mode) || fs::read_symlink(path, failed) != entry.target) return false;
    }
    if (entry.kind != pb::Entry::FILE) continue;
    if (!S_ISREG(st.st_mode) || static_cast<uint64_t>(st.st_size) != entry.size) return false;
    const Fd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    if (!file && is_shortage(errno_error("", errno))) return errno_error("open " + path.native(), errno);
    if (!file) return false;
    const auto digest = hash.hash(file.get(), path.native(), st);
    if (!digest.ok() && is_shortage(digest.error())) return digest.error();
    if (!digest.ok() || to_bytes(*digest) != entry.sha256) return false;
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<Trees>> Trees::open(const fs::path& folder) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) return errno_error("create " + folder.native(), failed.value());
  fs::directory_iterator item(folder, failed);
  for (; !failed && item != fs::directory_iterator(); item.increment(failed)) {
    if (!item->path().filename().native().starts_with(kUnfinishedPrefix)) continue;
    // It is in nobody's way, but for its room.
    if (const auto removed = remove_tree(item->path()); !removed.ok()) {
      fmt::print(stderr, "{}\n", removed.error().message);
    }
  }
  if (failed) return errno_error("list " + folder.native(), failed.value());
  return std::unique_ptr<Trees>(new Trees(folder));
}

fs::path Trees::tree_path(const Sha256& root) const {
  return folder_ / to_hex(root);
}
fs::path Trees::note_path(const Sha256& root) const {
  return folder_ / (to_hex(root) + std::string(kTreeNoteSuffix));
}

fs::path Trees::unfinished_path() {
  fs::path path;
  struct stat st {};
  do {
    path = folder_ / fmt::format("{}{}-{}", kUnfinishedPrefix, ::getpid(), ++unfinished_);
  } while (::lstat(path.c_str(), &st) == 0);
  return path;
}

Result<bool> Trees::is_usable(const Sha256& root) {
  const fs::path tree = tree_path(root);
  const fs::path note_file = note_path(root);
  struct stat st {};
  if (::lstat(tree.c_str(), &st) != 0) return false;
  if (checked_.contains(root)) return true;
  // Trees are not synced when they are built: that would cost more than building most of them
  // again. Within one boot the kernel has every byte; after another one they are read once.
  const std::string boot = boot_id();
  if (boot.empty()) return Error{Code::ResourceExhausted, "the boot id can't be read", ""};
  const auto note = read_note(note_file);
  if (!note.ok() && is_shortage(note.error())) return note.error();
  bool good = note.ok() && note->boot == boot;
  if (note.ok() && !good) {
    TRY(good, is_whole(tree, note->manifest));
  }
  if (!good) {
    (void)remove(root).ok();
    return false;
  }
  if (note->boot != boot) (void)write_note(note_file, note->manifest).ok();
  checked_.insert(root);
  return true;
}

Result<std::optional<fs::path>> Trees::find(const Sha256& root) {
  TRY(const bool usable, is_usable(root));
  if (!usable) return std::optional<fs::path>();
  ::utimensat(AT_FDCWD, note_path(root).c_str(), nullptr, 0);  // used now, for trim()
  return std::optional(tree_path(root));
}

Status Trees::remove(const Sha256& root) {
  checked_.erase(root);
  const fs::path away = unfinished_path();
  // Out of its name first: a tree is never seen in part.
  if (::rename(tree_path(root).c_str(), away.c_str()) != 0 && errno != ENOENT) {
    return errno_error("remove " + tree_path(root).native(), errno);
  }
  ::unlink(note_path(root).c_str());
  return remove_tree(away);
}

uint64_t Trees::unused_bytes(const std::set<Sha256>& in_use) const {
  std::set<std::string> used;                  // by content, which trees share
  std::map<std::string, uint64_t> unused;
  for (const KnownTree& tree : known_trees(folder_)) {
    const auto note = read_note(tree.note);
    if (!note.ok()) continue;
    std::string_view rest = note->manifest;
    for (ManifestEntry entry; read_entry(rest, entry);) {
      if (entry.kind != pb::Entry::FILE) continue;
      if (in_use.contains(tree.root)) {
        used.emplace(entry.sha256);
      } else {
        unused.emplace(entry.sha256, entry.size);
      }
    }
  }
  uint64_t bytes = 0;
  for (const auto& [content, size] : unused) bytes += used.contains(content) ? 0 : size;
  return bytes;
}

Status Trees::trim(uint64_t bytes_max, const std::set<Sha256>& in_use) {
  grown_ = false;
  uint64_t total_bytes = 0;
  for (const KnownTree& tree : known_trees(folder_)) {
    const auto note = read_note(tree.note);
    uint64_t tree_bytes = 0;
    if (note.ok()) {
      std::string_view rest = note->manifest;
      for (ManifestEntry entry; read_entry(rest, entry);) tree_bytes += entry.size;
    }
    if (total_bytes + tree_bytes > bytes_max && !in_use.contains(tree.root)) {
      TRY(remove(tree.root));
    } else {
      total_bytes += tree_bytes;
    }
  }
  return ok();
}

}  // namespace dtrain::runner
