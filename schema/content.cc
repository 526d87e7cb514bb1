#include "schema/content.h"

#include <fcntl.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "schema/fd.h"
#include "schema/file_hash.h"

namespace dtrain {

namespace {

// O_NONBLOCK: what was a file a moment ago may have become a fifo.
constexpr int kOpenFile = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;

// The manifest and the keys once more, each unread file's entry put in at its place.
class ManifestFiller {
 public:
  explicit ManifestFiller(const Walk& walk) : walk_(walk) {
    manifest.reserve(walk.manifest.size() + 128 * walk.unread.size());
    keys.reserve(walk.keys.size() + walk.unread.size());
  }

  void put(const UnreadFile& file, const ManifestEntry& entry, const StatKey& key) {
    copy_until(file.manifest_byte, file.key_index);
    append_entry(manifest, entry);
    keys.push_back(key);
  }

  void copy_rest() { copy_until(walk_.manifest.size(), walk_.keys.size()); }

  std::string manifest;
  std::vector<StatKey> keys;

 private:
  void copy_until(size_t manifest_end, size_t keys_end) {
    manifest.append(walk_.manifest, manifest_byte_, manifest_end - manifest_byte_);
    for (; key_index_ < keys_end; ++key_index_) keys.push_back(walk_.keys[key_index_]);
    manifest_byte_ = manifest_end;
  }

  const Walk& walk_;
  size_t manifest_byte_ = 0;  // copied so far
  size_t key_index_ = 0;
};

// What an entry is made of; nothing for a file that is gone, or is no file any more.
struct Content {
  Sha256 digest{};
  struct stat st {};
};
Result<std::optional<Content>> read_file(int project, const std::string& path, FileHash& hash) {
  const Fd file(::openat(project, path.c_str(), kOpenFile));
  if (!file && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
    return std::optional<Content>();
  if (!file) return cannot_read(path, errno);
  Content content;
  TRY(content.digest, hash.hash(file.get(), path, content.st));
  if (!S_ISREG(content.st.st_mode)) return std::optional<Content>();
  return std::optional(content);
}

ManifestEntry entry_of(const std::string& path, const Content& content) {
  ManifestEntry entry;
  entry.path = path;
  entry.mode = content.st.st_mode & 0777;
  entry.size = static_cast<uint64_t>(content.st.st_size);
  entry.sha256 = {reinterpret_cast<const char*>(content.digest.data()), content.digest.size()};
  return entry;
}

}  // namespace

Result<uint64_t> read_content(const std::filesystem::path& root, const SnapshotOptions& options,
                              Walk& walk) {
  if (walk.unread.empty()) return uint64_t{0};
  const Fd project(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!project) return cannot_read(root.native(), errno);
  uint64_t files = 0;
  uint64_t hashed_bytes = 0;
  FileHash hash([&](uint64_t bytes) {
    hashed_bytes += bytes;
    const bool worth_it = bytes >= 1u << 20 || files % 64 == 0;
    if (options.progress && worth_it) options.progress(hashed_bytes);
  });
  ManifestFiller filler(walk);
  for (const UnreadFile& unread : walk.unread) {
    TRY(const std::optional<Content> content, read_file(project.get(), unread.path, hash));
    walk.total_bytes -= unread.size;
    if (!content) {
      --walk.file_count;
      continue;
    }
    const ManifestEntry entry = entry_of(unread.path, *content);
    filler.put(unread, entry, stat_key_if_settled(content->st, walk.start_ns));
    walk.total_bytes += entry.size;
    ++files;
  }
  filler.copy_rest();
  walk.manifest = std::move(filler.manifest);
  walk.keys = std::move(filler.keys);
  return files;
}

}  // namespace dtrain
