#include "schema/snapshot.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "schema/content.h"
#include "schema/file_hash.h"
#include "schema/quote.h"
#include "schema/walk.h"

namespace dtrain {

namespace {

constexpr size_t kLargestShown = 10;

// "a, b and 3 more"
std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kShown = 4;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", in_quotes(names[i]));
  }
  if (names.size() > kShown) text += fmt::format(" and {} more", names.size() - kShown);
  return text;
}

std::vector<Notice> notices_of(const Walk& walk) {
  std::vector<Notice> notices;
  if (!walk.left_out.empty()) {
    // That something is left out is news once, however many caches come to be later.
    notices.push_back(
        {fmt::format("left out by default: {}; a line !NAME/ in .dtrainignore takes one in",
                     some_of(walk.left_out)),
         "left out by default"});
  }
  // Meant for a history of sources, it may name what a training reads.
  if (!walk.git_ignored.empty()) {
    notices.push_back({fmt::format("left out by .gitignore: {}; a line !NAME/ in .dtrainignore takes one in",
                                   some_of(walk.git_ignored)),
                       "left out by .gitignore"});
  }
  const auto name_all = [&](const std::vector<std::string>& names, std::string_view what) {
    if (names.empty()) return;
    const std::string text = fmt::format("{}: {}", what, some_of(names));
    notices.push_back({text, text});
  };
  name_all(walk.absolute_links, "absolute links stay links, their targets must exist on each host");
  name_all(walk.secret, "left out, being keys to a daemon, which are secret");
  name_all(walk.special, "left out, being sockets, fifos or devices");
  return notices;
}

ProjectSize size_of(const Walk& walk) {
  auto all = walk.top_level;
  const auto shown = static_cast<std::ptrdiff_t>(std::min(all.size(), kLargestShown));
  std::partial_sort(all.begin(), all.begin() + shown, all.end(),
                    [](const auto& a, const auto& b) { return a.second > b.second; });
  all.resize(static_cast<size_t>(shown));
  uint64_t unread_bytes = 0;
  for (const UnreadFile& file : walk.unread) unread_bytes += file.size;
  return {walk.total_bytes, walk.file_count, unread_bytes, std::move(all)};
}

Result<Fd> open_project(const std::filesystem::path& root) {
  Fd directory(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory) return cannot_read(root.native(), errno);
  return directory;
}

}  // namespace

Result<Snapshot> take_snapshot(const std::filesystem::path& root, const SnapshotOptions& options) {
  TRY(Fd directory, open_project(root));
  StatCache cache;
  if (!options.stat_cache.empty()) cache = StatCache::load(options.stat_cache);

  Walk walk(options, cache);
  TRY(walk.run(std::move(directory)));
  if (options.before_reading) TRY(options.before_reading(size_of(walk)));
  TRY(const uint64_t read_count, read_content(root, options, walk));

  Snapshot snapshot;
  // The same manifest has the same name: hashing it again would tell nothing new.
  snapshot.root = walk.changed || cache.size() == 0 ? sha256(walk.manifest) : cache.root();
  if (walk.changed && !options.stat_cache.empty()) {
    // Without a cache the next walk takes longer, and that is all.
    (void)StatCache::save(options.stat_cache, walk.manifest, walk.keys, snapshot.root).ok();
  }
  snapshot.notices = notices_of(walk);
  snapshot.manifest_bytes = std::move(walk.manifest);
  snapshot.total_bytes = walk.total_bytes;
  snapshot.file_count = walk.file_count;
  snapshot.hashed_count = read_count;
  return snapshot;
}

Status explain_snapshot(const std::filesystem::path& root, const SnapshotOptions& options) {
  TRY(Fd directory, open_project(root));
  StatCache nothing_known;
  Walk walk(options, nothing_known);
  TRY(walk.run(std::move(directory)));
  return options.before_reading ? options.before_reading(size_of(walk)) : ok();
}

SnapshotBlobs::SnapshotBlobs(std::filesystem::path root, const Snapshot& snapshot)
    : root_(std::move(root)), snapshot_(snapshot) {
  std::string_view rest = snapshot.manifest_bytes;
  blobs_.reserve(snapshot.file_count);
  for (ManifestEntry entry; read_entry(rest, entry);) {
    if (entry.kind != pb::Entry::FILE) continue;
    Sha256 name;
    std::copy_n(entry.sha256.begin(), name.size(), name.begin());
    blobs_.try_emplace(name, Where{entry.path, entry.size});
  }
}

Result<uint64_t> SnapshotBlobs::size(const Sha256& name) const {
  if (name == snapshot_.root) return uint64_t{snapshot_.manifest_bytes.size()};
  const auto found = blobs_.find(name);
  if (found == blobs_.end()) {
    return Error{Code::NotFound, fmt::format("the snapshot has no blob {}", to_hex(name)), ""};
  }
  return found->second.size;
}

Status SnapshotBlobs::send(const Sha256& name, const BlobPartSink& sink) {
  if (name == snapshot_.root) return encoder_.encode(snapshot_.manifest_bytes, sink);
  TRY(const uint64_t size, this->size(name));
  const std::string path(blobs_.find(name)->second.path);
  const Fd file(::open((root_ / path).c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file && (errno == ENOENT || errno == ENOTDIR)) {
    return Error{Code::Aborted, fmt::format("{} was there and is gone", in_quotes(path)), "run the command again"};
  }
  if (!file) return cannot_read(path, errno);
  Status sent = encoder_.encode_file(file.get(), size, name, sink);
  if (!sent.ok()) return std::move(sent).error().with_context(in_quotes(path));
  return sent;
}

}  // namespace dtrain
