#include "schema/walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "schema/access_key.h"
#include "schema/file_hash.h"
#include "schema/home.h"
#include "schema/quote.h"
#include "schema/size_text.h"

namespace dtrain {

namespace {

constexpr size_t kRulesBytesMax = 1u << 20;

Error refused(const std::string& path, std::string_view why, std::string_view hint) {
  return {Code::InvalidArgument, fmt::format("{} {}", in_quotes(path), why),
          std::string(hint)};
}

// The text of an ignore file; empty when there is no such regular file.
Result<std::string> read_rules_file(int directory, const char* name, const std::string& path) {
  const Fd file(::openat(directory, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat st {};
  if (!file || ::fstat(file.get(), &st) != 0) {
    return errno == ENOENT ? Result<std::string>(std::string()) : cannot_read(path, errno);
  }
  if (!S_ISREG(st.st_mode)) return std::string();
  if (st.st_size > static_cast<off_t>(kRulesBytesMax)) {
    return refused(path, "is larger than 1 MB", "write fewer, wider patterns");
  }
  std::string text(static_cast<size_t>(st.st_size), '\0');
  const ssize_t got = ::pread(file.get(), text.data(), text.size(), 0);
  if (got < 0) return cannot_read(path, errno);
  text.resize(static_cast<size_t>(got));
  return text;
}

// There may be thousands of them: the listing knows without asking for each.
bool is_link(int directory, const Listing& names, size_t i) {
  if (names.type(i) != DT_UNKNOWN) return names.type(i) == DT_LNK;
  struct stat st {};
  return ::fstatat(directory, names.name(i), &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode);
}

// As `dtrain train` leaves a runs/ behind: links named by numbers.
bool holds_only_links(int directory, const Listing& names) {
  for (size_t i = 0; i < names.size(); ++i) {
    const bool number = names.view(i).find_first_not_of("0123456789") == std::string_view::npos;
    if (!number || !is_link(directory, names, i)) return false;
  }
  return names.size() > 0;
}

bool is_home(const Listing& names) { return names.contains(kHomeLock) && names.contains(kHomeBlobs); }

}  // namespace

Walk::Walk(const SnapshotOptions& options, StatCache& cache)
    : start_ns(file_clock_ns()), options_(options), cache_(cache) {
  manifest.reserve(cache.manifest_bytes() + 4096);
  keys.reserve(cache.size() + 64);
  if (!options.stat_cache.empty() && stat(options.stat_cache.parent_path().c_str(), &cache_folder_) != 0) cache_folder_ = {};
}

Status Walk::run(Fd root) {
  Directory top;
  top.fd = std::move(root);
  top.emitted = true;  // the project itself is no entry
  TRY(enter(top));
  if (!refused_.empty()) return joined(std::move(refused_));
  changed = changed || !unread.empty() || keys.size() != cache_.size();
  return ok();
}

Status Walk::enter(Directory& directory) {
  if (depth_ >= kDepthMax) return refused(path_, "lies too deep", kHowToLeaveOut);
  if (depth_ == listings_.size()) listings_.emplace_back();
  Listing& names = listings_[depth_];
  if (auto listed = names.read(directory.fd.get()); !listed.ok()) {
    return std::move(listed).error().with_context(in_quotes(path_));
  }
  if (is_home(names)) return leave_home_out(directory);
  if (holds_stat_cache(directory)) {   // in a home that only asks the daemon of another one, there is nothing else
    explain(path_, false, "what dtrain knows of earlier syncs");
    return ok();
  }
  if (is_virtual_env(directory, names) || is_links_to_outputs(directory, names)) return ok();
  TRY(read_rules(directory, names));
  if (directory.out_why.empty()) emit_directory(directory);

  ++depth_;
  for (size_t i = 0; i < names.size(); ++i) {
    path_.resize(directory.path_bytes);
    if (directory.path_bytes > 0) path_ += '/';
    path_.append(names.view(i));
    TRY(check_count());
    // All that is wrong is told at once; it has one cause mostly, and one cure.
    Status visited = visit(directory, names.name(i), names.view(i));
    if (!visited.ok() && refused_.size() < kRefusedMax) refused_.push_back(std::move(visited).error());
  }
  --depth_;
  path_.resize(directory.path_bytes);
  if (directory.has_rules) rules_.pop();
  return ok();
}

// What a dtrain keeps changes all the time, and would travel into itself: nobody can ask for it.
Status Walk::leave_home_out(const Directory& directory) {
  if (directory.parent == nullptr) {
    return Error{Code::InvalidArgument, "the project's directory is a DTRAIN_HOME: what dtrain itself keeps lies in it",
                 "set DTRAIN_HOME to another directory"};
  }
  explain(path_, false, "a DTRAIN_HOME");
  return ok();
}

bool Walk::holds_stat_cache(const Directory& directory) const {
  struct stat here = {};
  return cache_folder_.st_ino != 0 && fstat(directory.fd.get(), &here) == 0 && here.st_ino == cache_folder_.st_ino &&
         here.st_dev == cache_folder_.st_dev;
}

// A virtual environment is only known by what is in it.
bool Walk::is_virtual_env(const Directory& directory, const Listing& names) {
  const bool asked_for = directory.parent == nullptr || directory.asked_for;
  if (asked_for || !directory.out_why.empty() || !names.contains(kVirtualEnvMark)) return false;
  left_out.push_back(path_ + '/');
  explain(path_, false, "a virtual environment");
  return true;
}

// The runs/ of another project below this one. (This project's own is out by name.)
bool Walk::is_links_to_outputs(const Directory& directory, const Listing& names) {
  const bool named = directory.parent != nullptr && std::string_view(path_).ends_with("/runs");
  if (!named || directory.asked_for || !holds_only_links(directory.fd.get(), names)) return false;
  explain(path_, false, "links to outputs of earlier runs");
  return true;
}

// Reads the ignore files of a directory before anything in it is looked at.
Status Walk::read_rules(Directory& directory, const Listing& names) {
  using Layer = IgnoreRules::Layer;
  constexpr std::pair<const char*, Layer> kFiles[] = {{".gitignore", Layer::Git},
                                                      {".risemlignore", Layer::Riseml},
                                                      {".dtrainignore", Layer::Dtrain}};
  for (const auto& [name, layer] : kFiles) {
    if (layer != Layer::Git && directory.parent != nullptr) break;
    if (!names.contains(name)) continue;
    const std::string path = path_ + (path_.empty() ? "" : "/") + name;
    TRY(const std::string text, read_rules_file(directory.fd.get(), name, path));
    if (layer == Layer::Git) {
      rules_.push(path_, text);
      directory.has_rules = true;
    } else {
      rules_.add(layer, text);
    }
  }
  return ok();
}

Status Walk::check_count() const {
  if (keys.size() + unread.size() < options_.limits.entries_max) return ok();
  return Error{Code::ResourceExhausted,
               fmt::format("the project has more than {} files", options_.limits.entries_max),
               "leave some out by .dtrainignore"};
}

Status Walk::visit(Directory& directory, const char* name, std::string_view name_view) {
  if (path_.size() > kPathBytesMax) return refused(path_, "is too long a path", kHowToLeaveOut);
  if (name_view == ".git") {
    explain(path_, false, ".git never travels");
    return ok();
  }
  struct stat st {};
  if (::fstatat(directory.fd.get(), name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
    return errno == ENOENT ? ok() : Status(cannot_read(path_, errno));  // gone since the listing
  }
  const bool is_directory = S_ISDIR(st.st_mode);
  const auto verdict = directory.out_why.empty()
                           ? rules_.decide(path_, is_directory)
                           : rules_.decide_below_excluded(path_, is_directory);
  std::string out_why = why_out(directory, name, verdict);
  if (out_why.empty() && verdict.kind != IgnoreRules::Verdict::Kind::Included && is_secret(directory, name, st)) {
    secret.push_back(path_);
    out_why = "a key to a daemon, which is secret";
  }
  if (!out_why.empty()) {
    explain(path_, false, out_why);
    if (!is_directory) return ok();
    if (!rules_.takes_in_below(path_)) {
      const bool is_news = verdict.excluded() && verdict.layer == IgnoreRules::Layer::Git && directory.parent == nullptr;
      if (is_news && name[0] != '.') git_ignored.push_back(path_ + '/');
      return ok();
    }
  }
  if (is_directory) return visit_directory(directory, name, st, verdict, std::move(out_why));
  if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode)) {
    special.push_back(path_);
    explain(path_, false, "neither file, directory nor link");
    return ok();
  }
  emit_directory(directory);
  Status visited = S_ISREG(st.st_mode) ? visit_file(directory, st) : visit_link(directory, name, st);
  explain(path_, visited.ok(), visited.ok() ? "" : visited.error().message);
  return visited;
}

// As `dtrain users invite` and `dtrain hosts invite` leave one in whatever directory they are called.
bool Walk::is_secret(const Directory& directory, const char* name, const struct stat& st) const {
  if (!S_ISREG(st.st_mode) || !path_.ends_with(".key")) return false;
  const Fd file(::openat(directory.fd.get(), name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  char begin[kAccessKeyMark];
  const ssize_t got = file ? ::pread(file.get(), begin, sizeof begin, 0) : 0;
  return got > 0 && begins_as_access_key({begin, static_cast<size_t>(got)});
}

bool Walk::is_our_runs(const Directory& directory, const char* name) {
  if (path_ != "runs") return false;
  const Fd runs(::openat(directory.fd.get(), name, kOpenDirectory));
  Listing names;
  return runs && names.read(runs.get()).ok() && holds_only_links(runs.get(), names);
}

std::string Walk::why_out(const Directory& directory, const char* name,
                          const IgnoreRules::Verdict& verdict) {
  if (verdict.kind == IgnoreRules::Verdict::Kind::Included) return "";
  if (!verdict.excluded()) return directory.out_why;
  // What we put there ourselves is not news.
  if (verdict.layer == IgnoreRules::Layer::Default && !is_our_runs(directory, name)) {
    left_out.push_back(path_ + '/');
  }
  return describe(verdict);
}

Status Walk::visit_directory(Directory& parent, const char* name, const struct stat& st,
                             const IgnoreRules::Verdict& verdict, std::string out_why) {
  Directory below;
  below.fd = Fd(::openat(parent.fd.get(), name, kOpenDirectory));
  if (!below.fd) {
    return errno == ENOENT || errno == ENOTDIR ? ok() : Status(cannot_read(path_, errno));
  }
  below.parent = &parent;
  below.path_bytes = path_.size();
  below.mode = st.st_mode & 0777;
  below.asked_for = verdict.kind == IgnoreRules::Verdict::Kind::Included;
  below.out_why = std::move(out_why);
  const uint64_t bytes_before = total_bytes;
  TRY(enter(below));
  if (parent.parent == nullptr && total_bytes > bytes_before) {
    top_level.emplace_back(path_ + '/', total_bytes - bytes_before);
  }
  return ok();
}

Status Walk::visit_file(Directory& parent, const struct stat& listed) {
  const auto size = static_cast<uint64_t>(listed.st_size);
  if (size > options_.limits.file_bytes_max) {
    return Error{Code::ResourceExhausted,
                 fmt::format("{} has {}: one file may have {}", in_quotes(path_),
                             size_text(size), size_text(options_.limits.file_bytes_max)),
                 fmt::format("{}{}", kHowToLeaveOut, options_.limits.how_to_raise)};
  }
  const ManifestEntry* known = cache_.find(path_);
  if (known != nullptr && known->kind == pb::Entry::FILE && cache_.is_current(listed)) {
    keep(*known, cache_.key());
  } else {
    unread.push_back({path_, size, manifest.size(), keys.size()});
  }
  count(parent, size);
  return ok();
}

Status Walk::visit_link(Directory& parent, const char* name, const struct stat& st) {
  char target[kPathBytesMax + 1];
  const ssize_t got = ::readlinkat(parent.fd.get(), name, target, sizeof target);
  if (got < 0) return errno == ENOENT ? ok() : Status(cannot_read(path_, errno));
  ManifestEntry entry;
  entry.path = path_;
  entry.kind = pb::Entry::SYMLINK;
  entry.mode = 0777;
  entry.target = {target, static_cast<size_t>(got)};
  if (entry.target.size() > kPathBytesMax) {
    return refused(path_, "has too long a target", kHowToLeaveOut);
  }
  if (leaves_tree(path_, entry.target)) {
    return refused(path_,
                   fmt::format("is a link out of the project: {}", in_quotes(entry.target)),
                   "make it absolute if each host has its target, copy the target in, or list the "
                   "link in .dtrainignore");
  }
  if (entry.target.starts_with('/')) {
    absolute_links.push_back(fmt::format("{} -> {}", path_, entry.target));
  }
  const ManifestEntry* known = cache_.find(path_);
  if (known != nullptr && known->kind == pb::Entry::SYMLINK && known->target == entry.target) {
    keep(*known, cache_.key());
  } else {
    emit(entry, stat_key_if_settled(st, start_ns));
  }
  return ok();
}

// Before the first thing in it: a directory that is out comes in with what is to be in again.
void Walk::emit_directory(Directory& directory) {
  if (directory.emitted) return;
  emit_directory(*directory.parent);
  directory.emitted = true;
  ManifestEntry entry;
  entry.path = std::string_view(path_).substr(0, directory.path_bytes);
  entry.kind = pb::Entry::DIRECTORY;
  entry.mode = directory.mode;
  explain(entry.path, true, "");
  const ManifestEntry* known = cache_.find(entry.path);
  if (known != nullptr && known->kind == pb::Entry::DIRECTORY && known->mode == entry.mode) {
    keep(*known, {});
  } else {
    emit(entry, {});
  }
}

void Walk::emit(const ManifestEntry& entry, const StatKey& key) {
  changed = true;
  append_entry(manifest, entry);
  keys.push_back(key);
}

void Walk::keep(const ManifestEntry& entry, const StatKey& key) {
  manifest.append(entry.encoded);
  keys.push_back(key);
}

void Walk::count(const Directory& parent, uint64_t size) {
  ++file_count;
  total_bytes += size;
  if (parent.parent == nullptr) top_level.emplace_back(path_, size);
}

void Walk::explain(std::string_view path, bool included, const std::string& why) {
  if (options_.explain) options_.explain({std::string(path), included, why});
}

}  // namespace dtrain
