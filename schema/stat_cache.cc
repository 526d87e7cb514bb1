#include "schema/stat_cache.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>

#include "schema/fd.h"
#include "schema/write_all.h"

namespace dtrain {

namespace {

constexpr char kMagic[8] = {'d', 't', 'r', 's', 't', 'a', 't', '1'};

struct Header {
  char magic[8];
  uint64_t checksum;  // of everything after this field
  uint64_t manifest_bytes;
  uint64_t entries;
  Sha256 root;
};
constexpr size_t kCheckedFrom = offsetof(Header, manifest_bytes);

// The kernel stamps files with the time of its last tick, at most 10 ms ago. Times that are whole
// seconds come from file systems that count in seconds or two.
constexpr int64_t kTickNs = 20'000'000;
constexpr int64_t kCoarseTickNs = 2'100'000'000;

int64_t to_ns(const timespec& time) {
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

bool is_settled(const timespec& time, int64_t walk_start_ns) {
  const int64_t tick_ns = time.tv_nsec == 0 ? kCoarseTickNs : kTickNs;
  return to_ns(time) < walk_start_ns - tick_ns;
}

}  // namespace

StatKey stat_key(const struct stat& st) {
  return {st.st_ino, to_ns(st.st_mtim), to_ns(st.st_ctim)};
}

StatKey stat_key_if_settled(const struct stat& st, int64_t walk_start_ns) {
  if (!is_settled(st.st_mtim, walk_start_ns) || !is_settled(st.st_ctim, walk_start_ns)) return {};
  return stat_key(st);
}

int64_t file_clock_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return to_ns(now);
}

StatCache StatCache::load(const std::filesystem::path& path) {
  StatCache cache;
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat st {};
  if (!file || ::fstat(file.get(), &st) != 0 || !S_ISREG(st.st_mode)) return cache;
  cache.bytes_.resize(static_cast<size_t>(st.st_size));
  size_t got = 0;
  while (got < cache.bytes_.size()) {
    const ssize_t n = ::read(file.get(), cache.bytes_.data() + got, cache.bytes_.size() - got);
    if (n <= 0) break;
    got += static_cast<size_t>(n);
  }
  if (got != cache.bytes_.size() || !cache.parse()) cache = {};
  return cache;
}

bool StatCache::parse() {
  Header header;
  if (bytes_.size() < sizeof header) return false;
  std::memcpy(&header, bytes_.data(), sizeof header);
  const std::string_view all = bytes_;
  const std::string_view checked = all.substr(kCheckedFrom);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 ||
      header.checksum != XXH3_64bits(checked.data(), checked.size())) {
    return false;
  }
  const size_t keys_bytes = header.entries * sizeof(StatKey);
  if (header.entries > kManifestEntriesMax ||
      bytes_.size() != sizeof header + header.manifest_bytes + keys_bytes) {
    return false;
  }
  manifest_ = rest_ = all.substr(sizeof header, header.manifest_bytes);
  keys_.resize(header.entries);
  if (keys_bytes > 0) {
    std::memcpy(keys_.data(), manifest_.data() + manifest_.size(), keys_bytes);
  }
  root_ = header.root;
  return true;
}

const ManifestEntry* StatCache::find(std::string_view path) {
  for (;;) {
    if (at_entry_) {
      // Equality first: it is the answer in all walks but those after a change.
      if (entry_.path == path) return &entry_;
      if (compare_paths(entry_.path, path) > 0) return nullptr;
    }
    at_entry_ = read_entry(rest_, entry_);
    ++index_;
    if (!at_entry_ || index_ >= keys_.size()) {
      at_entry_ = false;
      rest_ = {};
      return nullptr;
    }
  }
}

bool StatCache::is_current(const struct stat& st) const {
  const StatKey& known = keys_[index_];
  return known == stat_key(st) && known != StatKey{} &&
         (entry_.kind != pb::Entry::FILE || entry_.size == static_cast<uint64_t>(st.st_size)) &&
         entry_.mode == (st.st_mode & 0777u);
}

Status StatCache::save(const std::filesystem::path& path, std::string_view manifest,
                       const std::vector<StatKey>& keys, const Sha256& root) {
  std::string bytes(sizeof(Header), '\0');
  bytes.reserve(sizeof(Header) + manifest.size() + keys.size() * sizeof(StatKey));
  bytes.append(manifest);
  bytes.append(reinterpret_cast<const char*>(keys.data()), keys.size() * sizeof(StatKey));
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.manifest_bytes = manifest.size();
  header.entries = keys.size();
  header.root = root;
  std::memcpy(bytes.data(), &header, sizeof header);
  header.checksum = XXH3_64bits(bytes.data() + kCheckedFrom, bytes.size() - kCheckedFrom);
  std::memcpy(bytes.data(), &header, sizeof header);

  // A name of its own, so that two walks at once can't mix their bytes.
  const std::string temporary = fmt::format("{}.{}", path.native(), ::getpid());
  const Fd file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file) return errno_error("create " + temporary, errno);
  if (const int failed = write_all(file.get(), bytes); failed != 0) {
    ::unlink(temporary.c_str());
    return errno_error("write " + temporary, failed);
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) return errno_error("rename", errno);
  return ok();
}

}  // namespace dtrain
