#include "daemon/pruner.h"

#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "daemon/configuration_file.h"
#include "schema/clock.h"
#include "schema/materialise.h"

namespace dtrain::daemon {

namespace {

constexpr auto kLookEvery = std::chrono::hours(1);
// The loop is held up no longer than that at a time.
constexpr auto kSweepSlice = std::chrono::milliseconds(5);
constexpr auto kClosingWait = std::chrono::milliseconds(10);
constexpr int kClosingWaits = 500;
constexpr auto kSubmissionWait = std::chrono::milliseconds(100);
constexpr int kSubmissionTries = 600;

// Of an experiment that left no result there is only what we made: such folders would gather.
// Deletes it, and of a set what is like that. What can't be deleted or read stays.
void remove_unused(const std::filesystem::path& folder) {
  std::error_code failed;
  bool used = false;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failed)) {
    std::error_code gone;
    if (entry.is_directory(gone) && !entry.is_symlink(gone)) {
      remove_unused(entry.path());
      used = used || std::filesystem::exists(entry.path(), gone);
    } else {
      used = used || entry.path().filename() != kConfigurationFile;
    }
  }
  if (failed || used) return;
  std::filesystem::remove(folder / kConfigurationFile, failed);
  std::filesystem::remove(folder, failed);
}

// `runs/4` of the project, which led to what is no more. A project that is gone itself, or out of reach, is none.
void remove_link(const std::filesystem::path& project, uint32_t number, const std::filesystem::path& folder) {
  std::error_code failed;
  if (std::filesystem::exists(std::filesystem::symlink_status(folder, failed))) return;
  const auto link = project / "runs" / std::to_string(number);
  if (std::filesystem::read_symlink(link, failed) == folder) std::filesystem::remove(link, failed);
}

Status remove_files_of(const Home& home, const std::filesystem::path& journal, const Store::Closed& ended,
                       bool outputs, bool in_use) {
  const auto folder = home.outputs() / std::to_string(ended.number);
  if (outputs) {
    TRY(remove_tree(folder));
  } else if (!in_use) {
    remove_unused(folder);
  }
  remove_link(ended.project_dir, ended.number, folder);
  if (::unlink(journal.c_str()) != 0 && errno != ENOENT) {
    return errno_error("delete " + journal.string(), errno);
  }
  return ok();
}

Error stopped() {
  return {Code::Aborted, "the daemon stops; what is left goes with the next dtrain prune", ""};
}

}  // namespace

Pruner::Pruner(boost::asio::io_context& loop, const Home& home, Store& store, Blobs& blobs,
               Logs& logs, const Scheduler& scheduler, const Config& config, std::chrono::milliseconds first_look)
    : loop_(loop),
      home_(home),
      store_(store),
      blobs_(blobs),
      logs_(logs),
      scheduler_(scheduler),
      config_(config),
      hourly_(loop, first_look),
      again_(loop) {}

void Pruner::keep_limits() {
  if (!config_.keep_ended_ms && !config_.keep_log_bytes) return;
  hourly_.async_wait([this](boost::system::error_code error) {
    if (error) return;
    hourly_.expires_after(kLookEvery);
    keep_limits();
    const auto numbers = beyond_limits();
    if (!numbers.ok()) std::fprintf(stderr, "prune: %s\n", numbers.error().message.c_str());
    if (!numbers.ok() || numbers->empty()) return;
    pb::PruneRequest request;
    request.mutable_numbers()->Add(numbers->begin(), numbers->end());
    prune(std::move(request), [](const Result<pb::PruneReply>& reply) {
      if (!reply.ok()) {
        std::fprintf(stderr, "prune: %s\n", reply.error().message.c_str());
        return;
      }
      std::fprintf(stderr, "prune: forgotten as config.yml says: %d ended experiments\n",
                   reply->numbers_size());
    });
  });
}

// What ended too long ago, and then what ended first until the rest of the output lines fits.
Result<std::vector<uint32_t>> Pruner::beyond_limits() {
  TRY(auto closed, store_.closed_submissions());
  std::stable_sort(closed.begin(), closed.end(), [](const auto& a, const auto& b) {
    return a.ended_unix_ms < b.ended_unix_ms;
  });
  uint64_t kept_bytes = 0;
  for (const auto& each : closed) kept_bytes += log_bytes(each.number);
  const int64_t now = unix_ms();
  const bool believed = pace_.keeps(now, boottime_ms());
  std::vector<uint32_t> numbers;
  for (const auto& each : closed) {
    const bool old = believed && config_.keep_ended_ms &&
                     now - static_cast<int64_t>(each.ended_unix_ms) > *config_.keep_ended_ms;
    const bool much = config_.keep_log_bytes && kept_bytes > *config_.keep_log_bytes;
    if (!old && !much) continue;
    kept_bytes -= log_bytes(each.number);
    numbers.push_back(each.number);
  }
  return numbers;
}

void Pruner::prune(pb::PruneRequest request, Done done) {
  waiting_.push_back({std::move(request), std::move(done), {}, {}, 0, ok()});
  if (waiting_.size() == 1) begin_next();
}

void Pruner::stop() {
  stopping_ = true;
  hourly_.cancel();
  again_.cancel();
}

void Pruner::begin_next() {
  if (stopping_) return end(stopped());
  Work& work = waiting_.front();
  if (is_being_closed(work.request) && ++work.waits <= kClosingWaits) {
    again_.expires_after(kClosingWait);
    again_.async_wait([this](boost::system::error_code) { begin_next(); });
    return;
  }
  auto chosen = choose(work.request);
  if (!chosen.ok()) return end(chosen.error());
  work.chosen = std::move(*chosen);
  work.reply.set_outputs(home_.outputs().string());
  for (const auto& each : work.chosen) {
    work.reply.add_numbers(each.number);
    work.reply.set_log_bytes(work.reply.log_bytes() + log_bytes(each.number));
  }
  if (work.request.dry_run() || work.chosen.empty()) return begin_sweep(kSubmissionTries);
  remove_files();
}

// It has ended, and the last of its output is on its way to the disk.
bool Pruner::is_being_closed(const pb::PruneRequest& request) const {
  const auto& live = scheduler_.model().experiments;
  return std::any_of(request.numbers().begin(), request.numbers().end(), [&](uint32_t number) {
    const auto found = live.lower_bound({number, 0});
    return found != live.end() && found->first.number == number &&
           scheduler_.is_over({number, 0});
  });
}

Result<std::vector<Store::Closed>> Pruner::choose(const pb::PruneRequest& request) {
  TRY(auto closed, store_.closed_submissions());
  std::set<uint32_t> known;
  for (const auto& each : closed) known.insert(each.number);
  for (const uint32_t number : request.numbers()) {
    if (known.contains(number)) continue;
    TRY(store_.submission(number));
    return Error{Code::FailedPrecondition, fmt::format("{} has not ended", number),
                 fmt::format("dtrain kill {} ends it, dtrain wait {} waits for its end", number,
                             number)};
  }
  const std::set<uint32_t> named(request.numbers().begin(), request.numbers().end());
  const auto in_use = request.outputs() ? results_in_use() : std::map<uint32_t, uint32_t>();
  for (const auto& [number, by] : in_use) {
    if (!named.contains(number)) continue;
    return Error{Code::FailedPrecondition, fmt::format("{} uses the results of {}, and has not ended", by, number),
                 fmt::format("dtrain prune {} without --outputs leaves them", number)};
  }
  const int64_t now = unix_ms();
  std::erase_if(closed, [&](const Store::Closed& each) {
    const bool old = now - static_cast<int64_t>(each.ended_unix_ms) >
                     static_cast<int64_t>(request.older_than_ms());
    const bool theirs = request.user().empty() || request.user() == each.user;
    return !named.contains(each.number) &&
           !(request.older_than_ms() > 0 && old && theirs && !in_use.contains(each.number));
  });
  return closed;
}

// Those that something live comes after, or whose YAML names them: to go on from them, or to show them. With one that does.
std::map<uint32_t, uint32_t> Pruner::results_in_use() const {
  std::map<uint32_t, uint32_t> users;
  const std::string folder = (home_.outputs() / "").string();
  const Submission* seen = nullptr;
  for (const auto& [id, experiment] : scheduler_.model().experiments) {
    if (experiment.submission.get() == seen) continue;
    seen = experiment.submission.get();
    for (const ExperimentId& awaited : seen->spec.after) users.emplace(awaited.number, id.number);
    for (const ExperimentId& awaited : seen->spec.after_end) users.emplace(awaited.number, id.number);
    const std::string& yaml = seen->spec_yaml;
    for (size_t at = yaml.find(folder); at != std::string::npos; at = yaml.find(folder, at)) {
      at += folder.size();
      uint32_t number = 0;
      std::from_chars(yaml.data() + at, yaml.data() + yaml.size(), number);
      users.emplace(number, id.number);
    }
  }
  return users;
}

void Pruner::remove_files() {
  const Work& work = waiting_.front();
  std::vector<std::filesystem::path> journals;
  for (const auto& each : work.chosen) journals.push_back(logs_.path(each.number));
  boost::asio::post(files_, [this, chosen = work.chosen, journals, outputs = work.request.outputs(), in_use = results_in_use()] {
    Status status = ok();
    std::vector<uint32_t> removed;
    for (size_t i = 0; i < chosen.size(); ++i) {
      Status each = remove_files_of(home_, journals[i], chosen[i], outputs, in_use.contains(chosen[i].number));
      if (each.ok()) {
        removed.push_back(chosen[i].number);
      } else if (status.ok()) {
        status = std::move(each).error().with_context(fmt::format("{} is not forgotten", chosen[i].number));
      }
    }
    boost::asio::post(loop_, [this, removed = std::move(removed), status = std::move(status)]() mutable {
      Work& now = waiting_.front();
      now.reply.mutable_numbers()->Assign(removed.begin(), removed.end());
      now.kept = std::move(status);
      remove_rows();
    });
  });
}

Status Pruner::try_to_remove_rows() {
  const auto& numbers = waiting_.front().reply.numbers();
  return store_.remove_submissions({numbers.begin(), numbers.end()});
}

// Where the disk is full to the last byte the sent files go first, which makes room.
void Pruner::remove_rows() {
  auto removed = try_to_remove_rows();
  waiting_.front().has_rows = !removed.ok();
  if (!removed.ok() && removed.error().code != Code::ResourceExhausted)
    return end(std::move(removed));
  begin_sweep(kSubmissionTries);
}

void Pruner::begin_sweep(int tries_left) {
  if (!BlobSweep::may_begin(blobs_)) {
    if (tries_left == 0) {
      return end(Error{Code::Unavailable, "sent files stay, because a submission is going on",
                       "dtrain prune, once it is through"});
    }
    again_.expires_after(kSubmissionWait);
    again_.async_wait([this, tries_left](boost::system::error_code error) {
      if (error) return end(stopped());
      begin_sweep(tries_left - 1);
    });
    return;
  }
  const Work& work = waiting_.front();
  const auto& numbers = work.reply.numbers();
  const auto snapshots = store_.snapshots({numbers.begin(), numbers.end()});
  if (!snapshots.ok()) return end(snapshots.error());
  std::vector<Sha256> roots;
  for (const std::string& bytes : *snapshots) {
    if (const auto root = sha256_from_bytes(bytes); root.ok()) roots.push_back(*root);
  }
  sweep_ = std::make_unique<BlobSweep>(blobs_, std::move(roots), work.request.dry_run());
  sweep();
}

void Pruner::sweep() {
  if (stopping_) return end(stopped());
  const auto more = sweep_->step(kSweepSlice);
  if (!more.ok()) return end(more.error());
  if (*more) {
    boost::asio::post(loop_, [this] { sweep(); });
    return;
  }
  Work& work = waiting_.front();
  work.reply.set_blob_bytes(sweep_->unneeded_bytes());
  if (work.has_rows) {
    if (auto removed = try_to_remove_rows(); !removed.ok()) return end(std::move(removed));
  }
  end(std::exchange(work.kept, ok()));
}

void Pruner::end(Status status) {
  sweep_.reset();
  Work work = std::move(waiting_.front());
  waiting_.pop_front();
  if (!waiting_.empty()) boost::asio::post(loop_, [this] { begin_next(); });
  if (status.ok()) {
    work.done(std::move(work.reply));
  } else {
    work.done(std::move(status).error());
  }
}

uint64_t Pruner::log_bytes(uint32_t number) const {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(logs_.path(number), error);
  return error ? 0 : bytes;
}

}  // namespace dtrain::daemon
