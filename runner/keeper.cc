#include "runner/keeper.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <csignal>
#include <memory>
#include <utility>
#include <vector>

#include "runner/cgroup.h"
#include "runner/keeper_ctl.h"
#include "runner/keeper_exec.h"
#include "runner/keeper_fence.h"
#include "runner/kept_replica.h"
#include "runner/launch_facts.h"
#include "runner/process_tree.h"
#include "schema/small_file.h"
#include "schema/clock.h"
#include "schema/lock_file.h"
#include "schema/process_limits.h"
#include "schema/removal_watch.h"

namespace dtrain::runner {
namespace {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;

// How long facts may wait for the disk. A runner that is there has usually passed them on by then, and
// has said bye.
constexpr auto kSyncDelay = std::chrono::milliseconds(50);
constexpr auto kSyncRetry = std::chrono::seconds(1);
// What the loop has beyond lease and grace to end all by itself: it leaves nothing then to be killed.
constexpr int64_t kFenceMs = 1'000;

// Of any kind, orphans that came to us too. Reaps none.
bool has_children() {
  siginfo_t ignored{};
  return ::waitid(P_ALL, 0, &ignored, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

// Of CLOCK_BOOTTIME: the time a machine sleeps counts, since the daemon's doesn't stop meanwhile.
Status make_timer(asio::posix::stream_descriptor& timer) {
  Fd made(::timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!made) return errno_error("a timer", errno);
  timer.assign(made.release());
  return ok();
}

void set_timer(asio::posix::stream_descriptor& timer, int64_t at_ms) {
  itimerspec when{};
  when.it_value.tv_sec = at_ms / 1000;
  when.it_value.tv_nsec = (at_ms % 1000) * 1'000'000;
  ::timerfd_settime(timer.native_handle(), TFD_TIMER_ABSTIME, &when, nullptr);
}

// Whether it is over: it may have been set anew between its end and now.
bool has_rung(asio::posix::stream_descriptor& timer) {
  uint64_t expirations = 0;
  return ::read(timer.native_handle(), &expirations, sizeof expirations) > 0;
}

class Keeper {
 public:
  Keeper(LaunchDir directory, LaunchRecord launch);
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  Status prepare();
  void run();

 private:
  Status take_gpus();
  bool all_ended() const;
  void on_fact();
  void sync_in(std::chrono::milliseconds delay);
  void sync();
  void on_request(const CtlRequest& request);
  void on_signal();
  void reap();
  void say(const std::string& what) const;
  void sweep_in(int64_t delay_ms);
  void watch_sweep();
  void sweep();
  void count_lease_from(uint64_t contact_ms);
  void end_lease();
  void watch_lease();
  void on_directory_removed();
  void end_if_over();
  KeptReplica* find(const ReplicaId& id);

  asio::io_context loop_{1};
  const LaunchDir directory_;
  const LaunchRecord launch_;
  FactsWriter facts_;
  KeeperCtl ctl_;
  std::vector<std::unique_ptr<KeptReplica>> replicas_;
  KeeperExec exec_;
  KeeperFence fence_;
  std::vector<Fd> gpu_locks_;
  asio::signal_set signals_;
  asio::posix::stream_descriptor sweep_timer_;
  int64_t sweep_at_ms_ = 0;  // of boottime_ms(); 0: none is due
  asio::posix::stream_descriptor lease_;
  int64_t contact_ms_ = 0;   // what the lease counts from, of boottime_ms()
  RemovalWatch removal_;
  asio::steady_timer sync_timer_;
  bool sync_due_ = false;
  bool fence_told_ = false;
  bool started_ = false;
  bool said_bye_ = false;
  bool may_end_ = false;  // once every replica has ended
};

Keeper::Keeper(LaunchDir directory, LaunchRecord launch)
    : directory_(std::move(directory)),
      launch_(std::move(launch)),
      ctl_(loop_, [this](const CtlRequest& request) { on_request(request); }),
      exec_(loop_, launch_.key, [this](const ReplicaId& id) { return find(id); }),
      signals_(loop_, SIGCHLD, SIGTERM, SIGINT),
      sweep_timer_(loop_),
      lease_(loop_),
      removal_(loop_, directory_.record(), {.on_file = [this] { end_if_over(); }, .on_all = [this] { on_directory_removed(); }}),
      sync_timer_(loop_) {
  signals_.add(SIGHUP);
  for (const ReplicaLaunch& replica : launch_.replicas) {
    const KeeperCalls calls{[this] { ctl_.changed(); },
                            [this] { on_fact(); },
                            [this](int64_t delay_ms) { sweep_in(delay_ms); }};
    replicas_.push_back(
        std::make_unique<KeptReplica>(loop_, directory_, facts_, launch_, replica, calls));
  }
}

Status Keeper::prepare() {
  // Orphans of our replicas become our children instead of init's: nothing gets out of sight.
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) return errno_error("subreaper", errno);
  TRY(take_gpus());
  TRY(make_timer(sweep_timer_));
  watch_sweep();
  if (launch_.lease_ms != 0) {
    TRY(make_timer(lease_));
    watch_lease();
    if (const Status begun = fence_.begin(); !begun.ok()) say(begun.error().message);
  }
  TRY(ctl_.listen(launch_.ctl));  // one keeper a launch can
  // Nothing that trains is to be without a keeper for want of that.
  if (const Status listens = exec_.listen(launch_.ctl); !listens.ok()) say(listens.error().message);
  TRY(facts_, FactsWriter::open(directory_));
  ctl_.on_closed = [this] { end_if_over(); };
  on_signal();
  return facts_.add(identify(::getpid()));
}

// Held until nothing of any replica is left.
Status Keeper::take_gpus() {
  for (const std::string& path : launch_.gpu_locks) {
    TRY(Fd lock, hold_lock(path, 0666));
    gpu_locks_.push_back(std::move(lock));
  }
  return ok();
}

void Keeper::run() {
  loop_.run();
  if (sync_due_ && !said_bye_) sync();
}

bool Keeper::all_ended() const {
  return std::all_of(replicas_.begin(), replicas_.end(),
                     [](const auto& replica) { return replica->has_ended(); });
}

void Keeper::on_fact() {
  if (all_ended()) {
    gpu_locks_.clear();  // before anybody hears of it, and uses them again
    (void)remove_launch_cgroups(launch_);  // the runner tries again
  }
  ctl_.changed();
  if (!sync_due_) sync_in(kSyncDelay);
  end_if_over();
}

void Keeper::sync_in(std::chrono::milliseconds delay) {
  sync_due_ = true;
  sync_timer_.expires_after(delay);
  sync_timer_.async_wait([this](const ErrorCode& error) {
    if (!error) sync();
  });
}

void Keeper::sync() {
  sync_due_ = false;
  Status synced = facts_.sync();
  if (synced.ok()) synced = directory_.sync_names();
  std::error_code gone;
  if (synced.ok() || !std::filesystem::exists(directory_.record(), gone)) return end_if_over();
  say(synced.error().message);
  sync_in(kSyncRetry);
}

void Keeper::say(const std::string& what) const {
  fmt::print(stderr, "{}: {}\n", directory_.path().filename().string(), what);
}

KeptReplica* Keeper::find(const ReplicaId& id) {
  for (const auto& replica : replicas_) {
    if (replica->id() == id) return replica.get();
  }
  return nullptr;
}

void Keeper::on_request(const CtlRequest& request) {
  switch (request.verb) {
    case CtlRequest::Verb::Start:
      if (std::exchange(started_, true)) return;
      count_lease_from(request.number);
      for (const auto& replica : replicas_) replica->start();
      reap();  // SIGCHLDs of those that are over by now may have come as one
      return;
    case CtlRequest::Verb::Stop:
      if (KeptReplica* replica = find(request.replica)) {
        constexpr uint64_t kGraceMaxMs = uint64_t{1} << 40;
        replica->stop(static_cast<int64_t>(std::min(request.number, kGraceMaxMs)), "");
      }
      return;
    case CtlRequest::Verb::Renew:
      return count_lease_from(request.number);
    case CtlRequest::Verb::Acked:
      if (KeptReplica* replica = find(request.replica)) replica->acknowledge(request.number);
      return;
    case CtlRequest::Verb::Bye:
      said_bye_ = true;
      may_end_ = true;
      return end_if_over();
    case CtlRequest::Verb::Seen:
      return;  // handled in KeeperCtl
  }
}

void Keeper::end_if_over() {
  std::error_code error;
  const bool gone = !std::filesystem::exists(directory_.record(), error);
  // What the next runner needs is on the disk: without one there is nothing left to wait for.
  const bool unattended = !ctl_.is_connected() && !sync_due_;
  if (all_ended() ? may_end_ || gone || unattended : gone && !started_) loop_.stop();
}

void Keeper::on_signal() {
  signals_.async_wait([this](const ErrorCode& error, int signal) {
    if (error) return;
    if (signal == SIGCHLD) {
      // Of why it died before of how: the loop may have hung.
      if (fence_.has_killed() && !std::exchange(fence_told_, true)) end_lease();
      reap();
    } else {
      say(fmt::format("{}: ending the replicas", signal_name(signal)));
      may_end_ = true;
      for (const auto& replica : replicas_) {
        replica->stop(launch_.grace_ms, fmt::format("the keeper got {}", signal_name(signal)));
      }
      end_if_over();
    }
    on_signal();
  });
}

// The only place that waits for anything: replicas, commands beside them, and orphans that became our children.
void Keeper::reap() {
  for (;;) {
    int status = 0;
    rusage usage{};
    const pid_t pid = ::wait4(-1, &status, WNOHANG, &usage);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) break;
    for (const auto& replica : replicas_) {
      if (replica->main_pid() == pid) replica->on_exit(status, usage);
    }
    exec_.on_exit(pid, status);
  }
  exec_.hang_up_orphaned();
  const bool any_ending = std::any_of(replicas_.begin(), replicas_.end(),
                                      [](const auto& replica) { return replica->is_ending(); });
  if (any_ending) sweep_in(0);
}

void Keeper::sweep_in(int64_t delay_ms) {
  const int64_t at_ms = boottime_ms() + delay_ms;
  if (sweep_at_ms_ != 0 && sweep_at_ms_ <= at_ms) return;
  sweep_at_ms_ = at_ms;
  set_timer(sweep_timer_, at_ms);
}

void Keeper::watch_sweep() {
  sweep_timer_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const ErrorCode& error) {
    if (error) return;
    if (has_rung(sweep_timer_)) sweep();
    watch_sweep();
  });
}

// One look at the processes serves all replicas that end at about the same time.
void Keeper::sweep() {
  sweep_at_ms_ = 0;
  std::vector<TreeMarks> marks;
  for (const auto& replica : replicas_) marks.push_back(replica->marks());
  std::vector<std::vector<ProcessRow>> trees(replicas_.size() + 1);
  // Whatever our replicas started is below us, so without a child there is nothing.
  if (has_children()) {
    const ProcessTable table = ProcessTable::read_below_self();
    if (!table.whole) return sweep_in(100);   // out of descriptors, for a while
    trees = split_tree(table, ::getpid(), marks);
  }

  // Orphans without a mark belong to nobody while a replica runs that may have made them; after
  // that they go with the rest.
  const bool any_running = std::any_of(replicas_.begin(), replicas_.end(),
                                       [](const auto& replica) { return replica->is_running(); });
  for (size_t i = 0; i < replicas_.size(); ++i) {
    if (!replicas_[i]->is_ending()) continue;
    std::vector<ProcessRow> alive = std::move(trees[i]);
    if (!any_running) alive.insert(alive.end(), trees.back().begin(), trees.back().end());
    replicas_[i]->on_sweep(alive);
  }
}

void Keeper::count_lease_from(uint64_t contact_ms) {
  if (launch_.lease_ms == 0 || !started_ || contact_ms > static_cast<uint64_t>(boottime_ms())) return;
  contact_ms_ = std::max(contact_ms_, static_cast<int64_t>(contact_ms));
  const int64_t ends_ms = contact_ms_ + launch_.lease_ms;
  fence_.kill_at(ends_ms + launch_.grace_ms + kFenceMs);
  if (ends_ms <= boottime_ms()) return end_lease();
  set_timer(lease_, ends_ms);
}

void Keeper::end_lease() {
  const std::string why =
      fmt::format("lease expired: no word from the daemon for {} s", launch_.lease_ms / 1000);
  say(why);
  // To the daemon the grace begins with the end of the lease, which a machine that slept sees late.
  const int64_t left_ms = contact_ms_ + launch_.lease_ms + launch_.grace_ms - boottime_ms();
  const int64_t grace_ms = std::clamp<int64_t>(left_ms, 0, launch_.grace_ms);
  for (const auto& replica : replicas_) replica->stop(grace_ms, why);
}

void Keeper::watch_lease() {
  lease_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const ErrorCode& error) {
    if (error) return;
    if (has_rung(lease_)) end_lease();
    watch_lease();
  });
}

// With nobody to say `bye` that is the end. Nothing of what runs has a place any more, nor anybody to hear of it.
void Keeper::on_directory_removed() {
  may_end_ = true;
  for (const auto& replica : replicas_) {
    if (!replica->has_ended()) say(fmt::format("ends {}: the launch directory was removed", to_string(replica->id())));
    replica->stop(launch_.grace_ms, "its launch directory was removed");
  }
  end_if_over();
}

Result<std::unique_ptr<Keeper>> make_keeper(const LaunchDir& directory) {
  TRY(std::optional<LaunchRecord> launch, directory.read_launch());
  if (!launch) {
    return Error{Code::NotFound, directory.record().string() + " is not there", ""};
  }
  auto keeper = std::make_unique<Keeper>(directory, std::move(*launch));
  TRY(keeper->prepare());
  return keeper;
}

}  // namespace

int run_keeper(const std::filesystem::path& launch_dir) {
  std::error_code error;
  const LaunchDir directory(std::filesystem::absolute(launch_dir, error));
  // From here on descriptor 1 is the log like 2, and the runner waits for a word on another.
  Fd ready(::fcntl(1, F_DUPFD_CLOEXEC, 3));
  ::dup2(2, 1);
  std::setvbuf(stderr, nullptr, _IOLBF, 1024);
  std::signal(SIGPIPE, SIG_IGN);
  raise_own_limits();
  // Better a replica than its keeper when memory runs out. Only root may; others stay as they are.
  (void)write_switch("/proc/self/oom_score_adj", "-500");
  try {
    auto keeper = make_keeper(directory);
    const std::string word = keeper.ok() ? "ready\n" : keeper.error().message;
    // Nobody at the other end: the runner died or gave it up, and knows nothing of this keeper.
    const bool heard = ::write(ready.get(), word.data(), word.size()) ==
                       static_cast<ssize_t>(word.size());
    ready.reset();
    if (!keeper.ok() || !heard) return 1;
    (*keeper)->run();
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}: {}\n", directory.path().filename().string(), e.what());
    return 1;
  }
}

}  // namespace dtrain::runner
