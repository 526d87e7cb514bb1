#include "runner/carried_outputs.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "schema/clock.h"
#include "schema/materialise.h"
#include "schema/output_tree.h"
#include "schema/quote.h"
#include "schema/random_id.h"
#include "schema/small_file.h"

namespace dtrain::runner {
namespace fs = std::filesystem;
namespace {

using Entries = std::map<std::string, pb::OutputEntry>;

constexpr size_t kPartBytes = size_t{1} << 20;   // with what goes before it in a message: below 2 MiB
constexpr uint64_t kBytesAtOnce = uint64_t{256} << 20;
constexpr size_t kPathBytesAtOnce = 256 << 10;   // of one message, with room for what is said of each
constexpr const char* kDiscarded = "discarded-";
constexpr int64_t kQuietNs = 2'000'000'000;
constexpr int64_t kKeepSeconds = 7 * 24 * 3600;

Entries by_path(std::vector<pb::OutputEntry> entries) {
  Entries all;
  for (pb::OutputEntry& entry : entries) {
    std::string path = entry.path();
    all.emplace(std::move(path), std::move(entry));
  }
  return all;
}

const pb::OutputEntry* find(const Entries& entries, const std::string& path) {
  const auto found = entries.find(path);
  return found == entries.end() ? nullptr : &found->second;
}

bool same(const pb::OutputEntry* a, const pb::OutputEntry* b) { return a != nullptr && b != nullptr && same_output(*a, *b); }

// One at a time looks at what both sides have in common: a launch that begins, or one that goes on.
Result<Fd> lock(const CarriedPlace& place) {
  Fd directory(::open(place.root.c_str(), kOpenDirectory));
  if (!directory) return errno_error("open " + place.root.string(), errno);
  while (::flock(directory.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return errno_error("lock " + place.root.string(), errno);
  }
  return directory;
}

Result<Entries> read_common(const CarriedPlace& place) {
  TRY(const auto text, read_file(place.common()));
  pb::OutputList list;
  if (text && !list.ParseFromString(*text)) list.Clear();   // then all is compared anew
  Entries common;
  for (pb::OutputEntry& entry : *list.mutable_entries()) common[entry.path()] = std::move(entry);
  return common;
}

Status write_common(const CarriedPlace& place, const Entries& common) {
  pb::OutputList list;
  for (const auto& [path, entry] : common) *list.add_entries() = entry;
  return replace_file(place.common(), list.SerializeAsString());
}

Status make_folders(const CarriedPlace& place) {
  std::error_code error;
  fs::create_directories(place.files(), error);
  return error ? Status(errno_error("make " + place.files().string(), error.value())) : ok();
}

// The daemon's entries that are wanted here, written here. `got` has what came.
Status fetch(const OutputTree& tree, OutputStore& store, const pb::OutputsRequest& of,
             const std::vector<pb::OutputEntry>& wanted, Entries& got) {
  std::vector<std::string> files;
  for (const pb::OutputEntry& entry : wanted) {
    if (entry.kind() == pb::Entry::FILE) {
      files.push_back(entry.path());
    } else {
      TRY(tree.make(entry));
      got[entry.path()] = entry;
    }
  }
  std::optional<UnnamedOutput> file;
  pb::OutputEntry entry;   // of the file that is coming
  const auto take = [&](const pb::OutputPart& part) -> Status {
    if (!file) {
      entry = part.entry();
      TRY(UnnamedOutput coming, tree.create());
      file.emplace(std::move(coming));
    }
    TRY(file->append(part.data()));
    if (!part.last()) return ok();
    if (!part.withdrawn()) {
      TRY(file->give_name(entry));
      got[entry.path()] = entry;
    }
    file.reset();
    return ok();
  };
  pb::ReadOutputsRequest request;
  *request.mutable_of() = of;
  size_t bytes = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    bytes += files[i].size();
    request.add_paths(std::move(files[i]));
    if (bytes < kPathBytesAtOnce && i + 1 < files.size()) continue;
    TRY(store.read(request, take));
    request.clear_paths();
    bytes = 0;
  }
  return ok();
}

struct Change {
  pb::OutputEntry entry;
  bool removed = false;
};

// In the order in which it is to be seen: files as they were written, what names them after them, and what is no more at
// last.
std::vector<Change> changes_of(const Entries& here, const Entries& common, const RefusedOutputs& refused, Which which) {
  const int64_t quiet_until = unix_ms() * 1'000'000 - kQuietNs;
  std::vector<Change> changes;
  for (const auto& [path, entry] : here) {
    if (same(&entry, find(common, path)) || same(&entry, find(refused, path))) continue;
    if (which == Which::Quiet && entry.kind() == pb::Entry::FILE && entry.mtime_ns() > quiet_until) continue;
    changes.push_back({entry});
  }
  const auto rank = [](const Change& change) {
    return std::pair(change.entry.kind() == pb::Entry::SYMLINK, change.entry.mtime_ns());
  };
  std::stable_sort(changes.begin(), changes.end(), [&](const Change& a, const Change& b) { return rank(a) < rank(b); });
  for (auto at = common.rbegin(); at != common.rend(); ++at) {   // what is in a directory before that
    if (find(here, at->first) == nullptr) changes.push_back({at->second, true});
  }
  return changes;
}

// False: nobody listens any more. `sent` gets it as it went; nothing where it is gone, or changed while it was read.
Result<bool> say_file(const OutputTree& tree, pb::OutputEntry entry, Which which, const OutputStore::Say& say,
                      std::vector<Change>& sent) {
  const auto file = tree.open_file(entry.path());
  if (!file.ok() && file.error().code == Code::NotFound) return true;
  if (!file.ok()) return file.error();
  TRY(entry, tree.look(entry.path()));
  pb::OutputPart part;
  *part.mutable_entry() = entry;
  for (uint64_t left = entry.size();;) {
    std::string& data = *part.mutable_data();
    data.resize(static_cast<size_t>(std::min<uint64_t>(left, kPartBytes)));
    const ssize_t got = data.empty() ? 0 : ::read(file->get(), data.data(), data.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(fmt::format("read {}", in_quotes(entry.path())), errno);
    data.resize(static_cast<size_t>(got));
    left -= static_cast<uint64_t>(got);
    part.set_last(left == 0 || got == 0);
    if (part.last()) {
      const auto now = tree.look(entry.path());
      const bool grew = now.ok() && which == Which::Growing && now->kind() == pb::Entry::FILE && now->size() > entry.size();
      part.set_withdrawn(left > 0 || !now.ok() || !(grew || same_output(*now, entry)));
    }
    if (!say(part)) return false;
    if (part.last()) break;
    part.mutable_entry()->Clear();
    part.mutable_entry()->set_path(entry.path());
  }
  if (!part.withdrawn()) sent.push_back({std::move(entry)});
  return true;
}

}  // namespace

CarriedPlace carried_place(const fs::path& outputs, const std::string& experiment, const std::string& submission) {
  return {outputs / fmt::format("{}-{}", experiment, submission)};
}

std::optional<CarriedPlace> carried_place_of(const fs::path& outputs, const ReplicaLaunch& replica) {
  const auto own = replica.env.find("OUTPUT_DIR"), submission = replica.env.find("DTRAIN_SUBMISSION");
  if (own == replica.env.end() || submission == replica.env.end()) return std::nullopt;
  const CarriedPlace place = carried_place(outputs, to_string(replica.id.experiment), submission->second);
  return place.files() == own->second ? std::optional(place) : std::nullopt;
}

Status bring_outputs(const CarriedPlace& place, OutputStore& store, const pb::OutputsRequest& of) {
  TRY(make_folders(place));
  TRY(const Fd held, lock(place));
  TRY(const pb::OutputList list, store.list(of));
  TRY(const OutputTree tree, OutputTree::open(place.files()));
  tree.remove_unnamed();
  TRY(const Entries before, read_common(place));
  TRY(std::vector<pb::OutputEntry> listed, tree.list());
  const Entries here = by_path(std::move(listed)), there = by_path({list.entries().begin(), list.entries().end()});
  Entries common;
  std::vector<pb::OutputEntry> wanted;
  for (const auto& [path, entry] : there) {
    const pb::OutputEntry *own = find(here, path), *old = find(before, path);
    const bool changed_here = own == nullptr ? old != nullptr : !same(own, old);
    if (same(own, &entry)) {
      common[path] = entry;
    } else if (same(old, &entry)) {
      common[path] = *old;   // changed here alone
    } else if (own != nullptr && changed_here && own->mtime_ns() >= entry.mtime_ns()) {
      if (old != nullptr) common[path] = *old;   // it will be carried
    } else {
      wanted.push_back(entry);
    }
  }
  for (auto at = before.rbegin(); at != before.rend(); ++at) {
    if (find(there, at->first) == nullptr && same(find(here, at->first), &at->second)) TRY(tree.remove(at->second));
  }
  TRY(fetch(tree, store, of, wanted, common));
  return write_common(place, common);
}

Result<std::string> bring_resumed(const CarriedPlace& place, OutputStore& store, pb::OutputsRequest of,
                                  const std::string& path) {
  of.set_resume(path);
  const auto list = store.list(of);
  if (!list.ok()) return list.error().code == Code::NotFound ? Result<std::string>(std::string()) : list.error();
  TRY(make_folders(place));
  std::error_code error;
  fs::create_directories(place.resumed(), error);
  if (error) return errno_error("make " + place.resumed().string(), error.value());
  TRY(const Fd held, lock(place));
  TRY(const OutputTree tree, OutputTree::open(place.resumed()));
  TRY(std::vector<pb::OutputEntry> listed, tree.list());
  const Entries here = by_path(std::move(listed));
  std::vector<pb::OutputEntry> wanted;
  for (const pb::OutputEntry& entry : list->entries()) {
    if (!same(find(here, entry.path()), &entry)) wanted.push_back(entry);
  }
  Entries got;
  TRY(fetch(tree, store, of, wanted, got));
  if (list->is_file() && list->entries_size() == 1) return (place.resumed() / list->entries(0).path()).string();
  return place.resumed().string();
}

Result<Carried> carry_outputs(const CarriedPlace& place, OutputStore& store, const pb::OutputsRequest& of, Which which,
                              RefusedOutputs& refused) {
  Carried carried;
  TRY(const Fd held, lock(place));
  TRY(const OutputTree tree, OutputTree::open(place.files()));
  TRY(Entries common, read_common(place));
  TRY(std::vector<pb::OutputEntry> listed, tree.list(&carried.troubles));
  const Entries here = by_path(std::move(listed));
  std::erase_if(refused, [&](const auto& each) { return !same(find(here, each.first), &each.second); });
  const std::vector<Change> changes = changes_of(here, common, refused, which);
  if (changes.empty()) return carried;
  std::vector<Change> sent;
  std::map<std::string, std::string> unread;   // with the reasons
  const auto parts = [&](const OutputStore::Say& say) -> Status {
    uint64_t bytes = 0, path_bytes = 0;
    for (const Change& change : changes) {
      path_bytes += change.entry.path().size();
      if (path_bytes >= kPathBytesAtOnce || bytes >= kBytesAtOnce) {
        carried.more = true;
        break;
      }
      bool heard = true;
      if (change.removed || change.entry.kind() != pb::Entry::FILE) {
        pb::OutputPart part;
        *part.mutable_entry() = change.entry;
        part.set_removed(change.removed);
        part.set_last(true);
        heard = say(part);
        sent.push_back(change);
      } else {
        auto said = say_file(tree, change.entry, which, say, sent);
        if (!said.ok() && said.error().code == Code::PermissionDenied) {
          unread[change.entry.path()] = said.error().message;
          continue;
        }
        TRY(heard, std::move(said));
        bytes += change.entry.size();
      }
      if (!heard) break;
    }
    return ok();
  };
  TRY(const pb::WriteOutputsReply reply, store.write(of, parts));
  for (const pb::OutputTrouble& trouble : reply.troubles()) unread[trouble.path()] = trouble.why();
  for (Change& change : sent) {
    const std::string path = change.entry.path();
    if (unread.contains(path)) continue;
    if (change.removed) {
      common.erase(path);
    } else {
      common[path] = std::move(change.entry);
    }
  }
  for (const auto& [path, why] : unread) {
    if (const pb::OutputEntry* entry = find(here, path)) refused[path] = *entry;
    if (find(here, path) == nullptr) common.erase(path);   // it stays there
    carried.troubles.push_back(why);
  }
  TRY(write_common(place, common));
  return carried;
}

std::vector<std::pair<std::string, std::string>> unused_copies(const fs::path& outputs,
                                                               const std::set<std::string>& in_use) {
  std::vector<std::pair<std::string, std::string>> unused;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(outputs, error)) {
    const std::string name = entry.path().filename();
    const size_t dash = name.find('-');
    if (dash == name.npos || name.starts_with(kDiscarded) || in_use.contains(name.substr(0, dash))) continue;
    unused.emplace_back(name.substr(0, dash), name.substr(dash + 1));
  }
  return unused;
}

bool is_all_carried(const CarriedPlace& place) {
  const auto look = [&]() -> Result<bool> {
    TRY(const OutputTree tree, OutputTree::open(place.files()));
    TRY(const Entries common, read_common(place));
    TRY(const std::vector<pb::OutputEntry> listed, tree.list());
    return std::ranges::all_of(listed, [&](const pb::OutputEntry& entry) { return same(find(common, entry.path()), &entry); });
  };
  const auto all = look();
  return !all.ok() ? all.error().code == Code::NotFound : *all;
}

fs::path discard_copy(const CarriedPlace& place) {
  const auto id = random_id();
  if (!id.ok()) return {};
  const fs::path discarded = place.root.parent_path() / fmt::format("{}{}", kDiscarded, *id);
  return ::rename(place.root.c_str(), discarded.c_str()) == 0 ? discarded : fs::path();
}

void remove_old_copies(const fs::path& outputs, const std::set<std::string>& in_use) {
  const auto remove = [](const fs::path& path) {
    if (const Status removed = remove_tree(path); !removed.ok()) fmt::print(stderr, "{}\n", removed.error().message);
  };
  std::vector<fs::path> discarded;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(outputs, error)) {
    if (entry.path().filename().native().starts_with(kDiscarded)) discarded.push_back(entry.path());
  }
  std::ranges::for_each(discarded, remove);
  for (const auto& [experiment, submission] : unused_copies(outputs, in_use)) {
    const fs::path root = carried_place(outputs, experiment, submission).root;
    struct stat st {};
    if (::stat(root.c_str(), &st) == 0 && std::time(nullptr) - st.st_mtime >= kKeepSeconds) remove(root);
  }
}

}  // namespace dtrain::runner
