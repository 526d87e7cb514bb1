#include "cli/copy_outputs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <set>
#include <system_error>

#include "cli/signals.h"
#include "cli/words.h"
#include "schema/output_tree.h"

namespace dtrain::cli {

namespace fs = std::filesystem;

namespace {

constexpr size_t kChunkBytes = 1 << 20;

class Copying {
 public:
  explicit Copying(Signals& signals) : signals_(signals) {}

  // Over what is there.
  Status add(const fs::path& from, const fs::path& to) {
    if (is_stopped()) return ok();
    std::error_code failed, ignored;
    const fs::file_status what = fs::symlink_status(from, ignored);
    if (fs::is_regular_file(what)) return add_file(from, to);
    if (fs::is_directory(what)) {
      const bool made = fs::create_directory(to, from, failed);
      // One that nobody may write to gets its mode when all is in it.
      if (made) fs::permissions(to, what.permissions() | fs::perms::owner_all, failed);
      fs::directory_iterator entry;
      if (!failed) entry = fs::directory_iterator(from, failed);
      for (; !failed && entry != fs::directory_iterator(); entry.increment(failed)) {
        TRY(add(entry->path(), to / entry->path().filename()));
      }
      if (made && !failed) fs::permissions(to, what.permissions(), failed);
    } else if (fs::is_symlink(what)) {
      const fs::file_status there = fs::symlink_status(to, ignored);
      if (fs::is_symlink(there) || fs::is_regular_file(there)) fs::remove(to, failed);
      if (!failed) fs::copy_symlink(from, to, failed);
    } else {
      left_out_.push_back(from.filename().string() + " (a socket, fifo or device)");
    }
    if (failed) return errno_error(said(from, to), failed.value());
    return ok();
  }

  bool is_stopped() {
    if (stopped_by_ == 0) stopped_by_ = signals_.take();
    return stopped_by_ != 0;
  }
  int stopped_by() const { return stopped_by_; }
  size_t files() const { return files_; }
  std::vector<std::string> left_out() && { return std::move(left_out_); }

 private:
  static std::string said(const fs::path& from, const fs::path& to) { return fmt::format("copying {} to {}", from.string(), to.string()); }

  Status add_file(const fs::path& from, const fs::path& to) {
    std::error_code ignored;
    if (fs::is_directory(fs::symlink_status(to, ignored))) return errno_error(said(from, to), EISDIR);
    Status copied = copy_file(from, to);
    if (copied.ok()) return ok();
    if (copied.error().code == Code::InvalidArgument) {   // a name of dtrain's own
      left_out_.push_back(copied.error().message);
      return ok();
    }
    return std::move(copied).error().with_context(said(from, to));
  }
  Status copy_file(const fs::path& from, const fs::path& to) {
    TRY(const OutputTree source, OutputTree::open(from.parent_path()));
    TRY(const OutputTree target, OutputTree::open(to.has_parent_path() ? to.parent_path() : "."));
    TRY(OutputTree::OpenFile file, source.open_file(from.filename()));
    TRY(UnnamedOutput copy, target.create());
    std::string buffer(kChunkBytes, '\0');
    for (uint64_t left = file.entry.size(); left > 0;) {
      if (is_stopped()) return ok();
      const ssize_t count = ::read(file.fd.get(), buffer.data(), std::min<uint64_t>(left, buffer.size()));
      if (count < 0) return errno_error("read", errno);
      if (count == 0) {
        left_out_.push_back(from.filename().string() + " (it was written to meanwhile)");
        return ok();
      }
      TRY(copy.append({buffer.data(), static_cast<size_t>(count)}));
      left -= static_cast<uint64_t>(count);
    }
    file.entry.set_path(to.filename());
    TRY(copy.give_name(file.entry));
    ++files_;
    return ok();
  }

  Signals& signals_;
  int stopped_by_ = 0;
  size_t files_ = 0;
  std::vector<std::string> left_out_;
};

}  // namespace

void end_copying(int signal, size_t files) {
  fmt::print(stderr, "{}dtrain: interrupted: {} copied\n", isatty(STDERR_FILENO) == 1 ? "\n" : "", human_count(files, "file"));
  end_by(signal);
}

Result<CopiedOutputs> copy_outputs(const std::vector<fs::path>& sources, const fs::path& target, bool force) {
  std::set<fs::path> taken;
  for (const fs::path& from : sources) {
    std::error_code failed;
    const fs::path to = target / from.filename();
    if (!taken.insert(to).second) {
      return Error{Code::InvalidArgument, "two of these would be " + to.string(),
                   "take one of them at a time, with -t DIR"};
    }
    if (!force && fs::exists(fs::symlink_status(to, failed))) {
      return Error{Code::AlreadyExists, to.string() + " exists", "-f overwrites"};
    }
  }
  int stopped_by = 0;
  size_t files = 0;
  std::vector<std::string> left_out;
  {
    Signals signals({SIGINT, SIGQUIT, SIGTERM, SIGHUP});
    Copying copying(signals);
    for (const fs::path& from : sources) TRY(copying.add(from, target / from.filename()));
    stopped_by = copying.stopped_by();
    files = copying.files();
    left_out = std::move(copying).left_out();
  }
  if (stopped_by != 0) end_copying(stopped_by, files);
  return CopiedOutputs{sources.size(), std::move(left_out)};
}

}  // namespace dtrain::cli
