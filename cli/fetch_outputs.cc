#include "cli/fetch_outputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "cli/copy_outputs.h"
#include "cli/redial.h"
#include "cli/remote_outputs.h"
#include "cli/signals.h"
#include "schema/output_tree.h"

namespace dtrain::cli {

namespace fs = std::filesystem;

namespace {

bool is_within(const std::string& folder, const std::string& path) {
  return path == folder || (path.starts_with(folder) && path[folder.size()] == '/');
}

// Where each entry that is wanted goes, relative to the target: its path there begins with the last name of what was named.
class Plan {
 public:
  explicit Plan(const std::vector<pb::OutputEntry>& entries) : entries_(entries) {}

  Status add_all() {
    for (const pb::OutputEntry& entry : entries_) {
      if (entry.path().find('/') == std::string::npos) TRY(add(entry.path()));
    }
    return ok();
  }
  // What is at this path, with all that is below it.
  Status add(const std::string& path) {
    const std::string name = fs::path(path).filename();
    if (!names_.insert(name).second) {
      return Error{Code::InvalidArgument, fmt::format("two of these would be {}", name), "take one of them at a time, with -t DIR"};
    }
    for (const pb::OutputEntry& entry : entries_) {
      if (is_within(path, entry.path())) wanted_.emplace_back(&entry, name + entry.path().substr(path.size()));
    }
    return ok();
  }

  const std::set<std::string>& names() const { return names_; }
  const std::vector<std::pair<const pb::OutputEntry*, std::string>>& wanted() const { return wanted_; }

 private:
  const std::vector<pb::OutputEntry>& entries_;
  std::set<std::string> names_;
  std::vector<std::pair<const pb::OutputEntry*, std::string>> wanted_;
};

// Files as they come: the first part of each says what it is, the last one gives it its name.
class Receiver {
 public:
  Receiver(const OutputTree& tree, const std::map<std::string, std::string>& renamed) : tree_(tree), renamed_(renamed) {}

  Status take(const pb::OutputPart& part) {
    if (!file_) {
      const auto known = renamed_.find(part.entry().path());
      if (known == renamed_.end()) return unexpected();
      entry_ = part.entry();
      known_as_ = entry_.path();
      entry_.set_path(known->second);
      bytes_ = 0;
      TRY(UnnamedOutput file, tree_.create());
      file_.emplace(std::move(file));
    }
    bytes_ += part.data().size();
    if (bytes_ > entry_.size()) return unexpected();
    TRY(file_->append(part.data()));
    if (!part.last()) return ok();
    come_.insert(known_as_);
    const Status named = part.withdrawn() ? ok() : file_->give_name(entry_);
    if (part.withdrawn()) changed_.push_back(entry_.path() + " (it was written to meanwhile)");
    file_.reset();
    return named;
  }

  // What came of a file that broke off is gone.
  void break_off() { file_.reset(); }
  bool has(const std::string& path) const { return come_.contains(path); }
  size_t count() const { return come_.size(); }

  std::vector<std::string> changed() && { return std::move(changed_); }

 private:
  static Error unexpected() { return {Code::DataLoss, "the daemon sends other files than it was asked for", ""}; }

  const OutputTree& tree_;
  const std::map<std::string, std::string>& renamed_;
  std::optional<UnnamedOutput> file_;
  pb::OutputEntry entry_;
  std::string known_as_;         // to the daemon
  uint64_t bytes_ = 0;
  std::set<std::string> come_;   // likewise
  std::vector<std::string> changed_;
};

// Over as many connections as it takes: what has not come whole comes anew.
Status read_all(const OutputsSource& source, const std::string& id, std::vector<std::string> files, Signals& signals, int& stopped_by,
                Receiver& receiver) {
  while (true) {
    const Status read = read_outputs(source.channel(), id, files, &signals, stopped_by,
                                     [&](const pb::OutputPart& part) { return receiver.take(part); });
    receiver.break_off();
    if (read.ok() || stopped_by != 0 || !source.again || !Redial::may_resume(read.error().code)) return read;
    std::erase_if(files, [&](const std::string& path) { return receiver.has(path); });
    for (bool is_there = false; !is_there;) {
      TRY(is_there, source.again(signals));
      stopped_by = signals.take();
      if (stopped_by != 0) return read;
    }
  }
}

// Nobody loses a directory by it, nor a link to one.
Status check_in_the_way(const fs::path& at, pb::Entry::Kind kind) {
  std::error_code failed;
  const fs::file_status found = fs::symlink_status(at, failed);
  if (!fs::exists(found) || fs::is_directory(found) == (kind == pb::Entry::DIRECTORY)) return ok();
  return Error{Code::AlreadyExists,
               fmt::format("{} is {}, and would be {}", at.string(), fs::is_directory(found) ? "a directory" : "none",
                           kind == pb::Entry::DIRECTORY ? "a directory" : "none"),
               "move it, or copy to another place: -t DIR"};
}

bool is_below_any(const std::vector<fs::path>& paths, const std::string& path) {
  return paths.empty() || std::ranges::any_of(paths, [&](const fs::path& named) { return named == "." || is_within(named.string(), path); });
}

}  // namespace

Result<FetchedOutputs> fetch_outputs(const OutputsSource& source, const std::string& id, const std::vector<fs::path>& paths,
                                     const fs::path& target, bool force) {
  TRY(const ListedOutputs listed, list_outputs(source.channel(), id));
  FetchedOutputs fetched;
  for (const pb::OutputTrouble& trouble : listed.left_out) {
    if (is_below_any(paths, trouble.path())) fetched.left_out.push_back(trouble.why());
  }
  Plan plan(listed.entries);
  for (const fs::path& path : paths) {
    const bool is_all = path == ".";
    const bool is_there = is_all || std::ranges::any_of(listed.entries, [&](const pb::OutputEntry& entry) { return entry.path() == path; });
    if (!is_there && !fetched.left_out.empty()) return Error{Code::FailedPrecondition, fetched.left_out.front(), "it does not travel"};
    if (!is_there) {
      return Error{Code::NotFound, fmt::format("{} has no '{}' in its output", id, path.string()),
                   fmt::format("dtrain output ls {} lists what is there", id)};
    }
    TRY(is_all ? plan.add_all() : plan.add(path));
  }
  if (paths.empty()) TRY(plan.add_all());
  std::error_code failed;
  for (const std::string& name : plan.names()) {
    if (force || !fs::exists(fs::symlink_status(target / name, failed))) continue;
    return Error{Code::AlreadyExists, (target / name).string() + " exists", "-f overwrites"};
  }
  for (const auto& [entry, to] : plan.wanted()) TRY(check_in_the_way(target / to, entry->kind()));
  fs::create_directories(target, failed);
  if (failed) return errno_error("creating " + target.string(), failed.value());
  TRY(const OutputTree tree, OutputTree::open(target));
  std::vector<std::string> files;
  std::map<std::string, std::string> renamed;
  for (const auto& [entry, to] : plan.wanted()) {
    if (entry->kind() == pb::Entry::FILE) {
      files.push_back(entry->path());
      renamed[entry->path()] = to;
      continue;
    }
    pb::OutputEntry made = *entry;
    made.set_path(to);
    const Status status = tree.make(made);
    // A link into what is not copied with it.
    if (!status.ok() && entry->kind() == pb::Entry::SYMLINK && status.error().code == Code::InvalidArgument) {
      fetched.left_out.push_back(status.error().message);
      continue;
    }
    TRY(status);
  }
  int stopped_by = 0;
  size_t files_come = 0;
  Status read = ok();
  {
    Signals signals({SIGINT, SIGQUIT, SIGTERM, SIGHUP});
    Receiver receiver(tree, renamed);
    read = read_all(source, id, files, signals, stopped_by, receiver);
    files_come = receiver.count();
    for (std::string& changed : std::move(receiver).changed()) fetched.left_out.push_back(std::move(changed));
  }
  if (stopped_by != 0) end_copying(stopped_by, files_come);
  TRY(read);
  fetched.items = plan.names().size();
  return fetched;
}

}  // namespace dtrain::cli
