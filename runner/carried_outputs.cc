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

using Entries = OutputEntries;

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

// What both sides have, and what was on its way when this was written: it may have come or not.
struct Common {
  Entries common, sending;
};
Result<Common> read_common(const CarriedPlace& place) {
  TRY(const auto text, read_file(place.common()));
  pb::OutputList list;
  if (text && !list.ParseFromString(*text)) list.Clear();   // then all is compared anew
  Common read;
  for (pb::OutputEntry& entry : *list.mutable_entries()) read.common[entry.path()] = std::move(entry);
  for (pb::OutputEntry& entry : *list.mutable_sending()) read.sending[entry.path()] = std::move(entry);
  return read;
}

Status write_common(const CarriedPlace& place, const Entries& common, const Entries& sending = {}) {
  pb::OutputList list;
  for (const auto& [path, entry] : common) *list.add_entries() = entry;
  for (const auto& [path, entry] : sending) *list.add_sending() = entry;
  return replace_file(place.common(), list.SerializeAsString());
}

Status make_folders(const CarriedPlace& place) {
  std::error_code error;
  fs::create_directories(place.files(), error);
  return error ? Status(errno_error("make " + place.files().string(), error.value())) : ok();
}

// The daemon's entries that are wanted here, written here. `got` has what came.
Status fetch(const OutputTree& tree, OutputStore& store, const pb::OutputsRequest& of,
             const std::vector<pb::OutputEntry>& wanted_entries, const std::function<bool()>& wanted, Entries& got) {
  std::vector<std::string> files;
  for (const pb::OutputEntry& entry : wanted_entries) {
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
    if (!wanted()) return Error{Code::Cancelled, "nobody wants it any more", ""};
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

bool is_below(const std::string& path, const std::string& directory) {
  return path.size() > directory.size() && path.starts_with(directory) && path[directory.size()] == '/';
}

// In the order in which it is to be seen: files as they were written, what names them after them, and what is no more at
// last.
struct Changes {
  std::vector<Change> all;
  std::vector<std::string> gone;   // from there, too: below what is no directory any more
  bool waits = false;              // something was left for later
};
Changes changes_of(const Entries& here, const std::vector<OutputTree::LeftOut>& left_out, const Common& known,
                   const CarryMemory& memory, Which which) {
  const int64_t quiet_until = unix_ms() * 1'000'000 - kQuietNs;
  Changes changes;
  for (const auto& [path, entry] : here) {
    const auto refused = memory.refused.find(path);
    if (same(&entry, find(known.common, path)) || (refused != memory.refused.end() && same(&entry, &refused->second.entry))) continue;
    if (which == Which::Quiet && entry.kind() == pb::Entry::FILE && entry.mtime_ns() > quiet_until) {
      changes.waits = true;
    } else {
      changes.all.push_back({entry});
    }
  }
  const auto rank = [](const Change& change) {
    return std::pair(change.entry.kind() == pb::Entry::SYMLINK, change.entry.mtime_ns());
  };
  std::stable_sort(changes.all.begin(), changes.all.end(), [&](const Change& a, const Change& b) { return rank(a) < rank(b); });
  const auto is_unknown = [&](const std::string& path) {
    return std::ranges::any_of(left_out, [&](const auto& each) { return each.path == path || is_below(path, each.path); });
  };
  const auto is_below_file = [&](const std::string& path) {
    for (size_t end = path.rfind('/'); end != path.npos && end > 0; end = path.rfind('/', end - 1)) {
      const pb::OutputEntry* above = find(here, path.substr(0, end));
      if (above != nullptr) return above->kind() != pb::Entry::DIRECTORY;
    }
    return false;
  };
  Entries there = known.common;
  there.insert(known.sending.begin(), known.sending.end());
  for (auto at = there.rbegin(); at != there.rend(); ++at) {   // what is in a directory before that
    if (find(here, at->first) != nullptr || is_unknown(at->first)) continue;
    if (is_below_file(at->first)) {
      changes.gone.push_back(at->first);
    } else {
      changes.all.push_back({at->second, true});
    }
  }
  return changes;
}

// False: nobody listens any more. `sent` gets it as it went; nothing where it is gone, or changed since it was listed.
Result<bool> say_file(const OutputTree& tree, pb::OutputEntry entry, Which which, const OutputStore::Say& say,
                      std::vector<Change>& sent) {
  const auto file = tree.open_file(entry.path());
  if (!file.ok() && file.error().code == Code::NotFound) return true;
  if (!file.ok()) return file.error();
  if (which == Which::Quiet && !same_output(file->entry, entry)) return true;   // it does not rest any more
  entry = file->entry;
  pb::OutputPart part;
  *part.mutable_entry() = entry;
  for (uint64_t left = entry.size();;) {
    std::string& data = *part.mutable_data();
    data.resize(static_cast<size_t>(std::min<uint64_t>(left, kPartBytes)));
    const ssize_t got = data.empty() ? 0 : ::read(file->fd.get(), data.data(), data.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const Error error = errno_error(fmt::format("read {}", in_quotes(entry.path())), errno);
      data.clear();
      part.set_last(true);
      part.set_withdrawn(true);
      if (!say(part)) return false;
      return error;
    }
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

Status bring_outputs(const CarriedPlace& place, OutputStore& store, const pb::OutputsRequest& of,
                     const std::function<bool()>& wanted) {
  TRY(make_folders(place));
  TRY(const Fd held, lock(place));
  TRY(const pb::OutputList list, store.list(of));
  TRY(const OutputTree tree, OutputTree::open(place.files()));
  tree.remove_unnamed();
  TRY(const Common known, read_common(place));
  const Entries& before = known.common;
  std::vector<OutputTree::LeftOut> left_out;
  TRY(std::vector<pb::OutputEntry> listed, tree.list(&left_out));
  const Entries here = by_path(std::move(listed)), there = by_path({list.entries().begin(), list.entries().end()});
  Entries common;
  std::vector<pb::OutputEntry> wanted_entries;
  for (const auto& [path, entry] : there) {
    const bool is_unknown = std::ranges::any_of(left_out, [&](const auto& each) { return each.path == path || is_below(path, each.path); });
    if (is_unknown || (!here.contains(path) && same(find(known.sending, path), &entry))) continue;   // it was deleted since
    const pb::OutputEntry *own = find(here, path), *old = find(before, path);
    const bool changed_here = own == nullptr ? old != nullptr : !same(own, old);
    if (same(own, &entry)) {
      common[path] = entry;
    } else if (same(old, &entry)) {
      common[path] = *old;   // changed here alone
    } else if (own != nullptr && changed_here && own->mtime_ns() >= entry.mtime_ns()) {
      if (old != nullptr) common[path] = *old;   // it will be carried
    } else {
      wanted_entries.push_back(entry);
    }
  }
  for (auto at = before.rbegin(); at != before.rend(); ++at) {
    if (find(there, at->first) == nullptr && same(find(here, at->first), &at->second)) TRY(tree.remove(at->second));
  }
  TRY(fetch(tree, store, of, wanted_entries, wanted, common));
  return write_common(place, common, known.sending);
}

Result<std::string> bring_results(const CarriedPlace& place, const fs::path& folder, OutputStore& store,
                                  pb::OutputsRequest of, const std::string& path, const std::function<bool()>& wanted) {
  of.set_resume(path);
  const auto list = store.list(of);
  if (!list.ok()) return list.error().code == Code::NotFound ? Result<std::string>(std::string()) : list.error();
  TRY(make_folders(place));
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return errno_error("make " + folder.string(), error.value());
  TRY(const Fd held, lock(place));
  TRY(const OutputTree tree, OutputTree::open(folder));
  TRY(std::vector<pb::OutputEntry> listed, tree.list());
  const Entries here = by_path(std::move(listed));
  std::vector<pb::OutputEntry> wanted_entries;
  for (const pb::OutputEntry& entry : list->entries()) {
    if (!same(find(here, entry.path()), &entry)) wanted_entries.push_back(entry);
  }
  Entries got;
  TRY(fetch(tree, store, of, wanted_entries, wanted, got));
  if (list->is_file() && list->entries_size() == 1) return (folder / list->entries(0).path()).string();
  return folder.string();
}

Result<Carried> carry_outputs(const CarriedPlace& place, OutputStore& store, const pb::OutputsRequest& of, Which which,
                              CarryMemory& memory) {
  Carried carried;
  TRY(const Fd held, lock(place));
  TRY(const OutputTree tree, OutputTree::open(place.files()));
  TRY(Common known, read_common(place));
  if (memory.common) known.common = *memory.common;
  std::vector<OutputTree::LeftOut> left_out;
  TRY(std::vector<pb::OutputEntry> listed, tree.list(&left_out));
  const Entries here = by_path(std::move(listed));
  std::erase_if(memory.refused, [&](const auto& each) { return !same(find(here, each.first), &each.second.entry); });
  Changes changes = changes_of(here, left_out, known, memory, which);
  std::vector<Change> sent;
  const auto parts = [&](const OutputStore::Say& say) -> Status {
    uint64_t bytes = 0, path_bytes = 0;
    for (const Change& change : changes.all) {
      path_bytes += change.entry.path().size();
      if (path_bytes >= kPathBytesAtOnce || bytes >= kBytesAtOnce) {
        carried.more = !sent.empty();
        break;
      }
      bool heard = true;
      if (change.removed || change.entry.kind() != pb::Entry::FILE) {
        // What replaces it, or what it names, is not there yet.
        if (changes.waits && change.entry.kind() != pb::Entry::DIRECTORY) continue;
        if (changes.waits && change.removed) continue;
        pb::OutputPart part;
        *part.mutable_entry() = change.entry;
        part.set_removed(change.removed);
        part.set_last(true);
        heard = say(part);
        sent.push_back(change);
      } else {
        const size_t before = sent.size();
        auto said = say_file(tree, change.entry, which, say, sent);
        if (!said.ok() && said.error().code != Code::ResourceExhausted) {
          memory.refused[change.entry.path()] = {change.entry, said.error().message};
          continue;
        }
        TRY(heard, std::move(said));
        changes.waits = changes.waits || sent.size() == before;
        bytes += change.entry.size();
      }
      if (!heard) break;
    }
    return ok();
  };
  if (!changes.all.empty()) {
    for (const Change& change : changes.all) {
      if (!change.removed) known.sending[change.entry.path()] = change.entry;
    }
    (void)write_common(place, known.common, known.sending).ok();   // this disk may be full; it is only a precaution
    TRY(const pb::WriteOutputsReply reply, store.write(of, parts));
    std::map<std::string, std::string> troubles;
    for (const pb::OutputTrouble& trouble : reply.troubles()) troubles[trouble.path()] = trouble.why();
    for (Change& change : sent) {
      const std::string path = change.entry.path();
      if (const auto trouble = troubles.find(path); trouble != troubles.end() && !change.removed) {
        memory.refused[path] = {change.entry, trouble->second};
      } else if (change.removed) {
        known.common.erase(path);   // what can't be deleted stays
        known.sending.erase(path);
      } else {
        known.common[path] = std::move(change.entry);
        known.sending.erase(path);
      }
    }
  }
  for (const std::string& path : changes.gone) {
    known.common.erase(path);
    known.sending.erase(path);
  }
  std::erase_if(known.sending, [&](const auto& each) { return memory.refused.contains(each.first); });
  if (!changes.all.empty() || !changes.gone.empty() || memory.common) {
    if (write_common(place, known.common, known.sending).ok()) {
      memory.common.reset();
    } else {
      memory.common = std::move(known.common);
    }
  }
  for (const auto& each : left_out) carried.troubles.push_back(each.why);
  for (const auto& [path, refused] : memory.refused) carried.troubles.push_back(refused.why);
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
    TRY(const Common known, read_common(place));
    TRY(const std::vector<pb::OutputEntry> listed, tree.list());
    return std::ranges::all_of(listed, [&](const pb::OutputEntry& entry) { return same(find(known.common, entry.path()), &entry); });
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

void remove_old_copies(const fs::path& outputs, const std::set<std::string>& in_use, bool ages_believed) {
  const auto remove = [](const fs::path& path) {
    if (const Status removed = remove_tree(path); !removed.ok()) fmt::print(stderr, "{}\n", removed.error().message);
  };
  std::vector<fs::path> discarded;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(outputs, error)) {
    if (entry.path().filename().native().starts_with(kDiscarded)) discarded.push_back(entry.path());
  }
  std::ranges::for_each(discarded, remove);
  if (!ages_believed) return;
  for (const auto& [experiment, submission] : unused_copies(outputs, in_use)) {
    const fs::path root = carried_place(outputs, experiment, submission).root;
    struct stat st {};
    if (::stat(root.c_str(), &st) == 0 && std::time(nullptr) - st.st_mtime >= kKeepSeconds) remove(root);
  }
}

}  // namespace dtrain::runner
