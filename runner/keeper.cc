#include "runner/keeper.h"

#include <fcntl.h>
#include <sys/inotify.h>
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
#include <vector>

#include "runner/keeper_ctl.h"
#include "runner/kept_replica.h"
#include "runner/process_tree.h"
#include "runner/small_file.h"
#include "schema/clock.h"

namespace dtrain::runner {
namespace {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;

class Keeper {
 public:
  Keeper(LaunchDir directory, LaunchFile launch);
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  Status prepare();
  void run() { loop_.run(); }

 private:
  void on_request(const CtlRequest& request);
  void on_signal();
  void reap();
  void sweep_in(int64_t delay_ms);
  void sweep();
  void set_lease(int64_t left_ms);
  void watch_lease();
  void watch_directory();
  void end_if_over();
  KeptReplica* find(const ReplicaId& id);

  asio::io_context loop_{1};
  const LaunchDir directory_;
  const LaunchFile launch_;
  KeeperCtl ctl_;
  std::vector<std::unique_ptr<KeptReplica>> replicas_;
  asio::signal_set signals_;
  asio::steady_timer sweep_timer_;
  int64_t sweep_at_ms_ = 0;  // of boottime_ms(); 0: none is due
  asio::posix::stream_descriptor lease_;
  asio::posix::stream_descriptor directory_events_;
  bool started_ = false;
  bool may_end_ = false;       // once every replica has ended
  bool has_children_ = false;  // of any kind, as the last reaping found
};

Keeper::Keeper(LaunchDir directory, LaunchFile launch)
    : directory_(std::move(directory)),
      launch_(std::move(launch)),
      ctl_(loop_, [this](const CtlRequest& request) { on_request(request); }),
      signals_(loop_, SIGCHLD, SIGTERM, SIGINT),
      sweep_timer_(loop_),
      lease_(loop_),
      directory_events_(loop_) {
  signals_.add(SIGHUP);
  for (const ReplicaLaunch& replica : launch_.replicas) {
    const KeeperCalls calls{[this] {
                              ctl_.changed();
                              end_if_over();
                            },
                            [this](int64_t delay_ms) { sweep_in(delay_ms); }};
    replicas_.push_back(std::make_unique<KeptReplica>(loop_, directory_, launch_, replica, calls));
  }
}

Status Keeper::prepare() {
  // Orphans of our replicas become our children instead of init's: nothing gets out of sight.
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) return errno_error("subreaper", errno);
  TRY(ctl_.listen(directory_));
  on_signal();
  watch_directory();
  return directory_.write_keeper({identify(::getpid())});
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
      set_lease(launch_.lease_ms);
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
      set_lease(launch_.lease_ms - static_cast<int64_t>(std::min<uint64_t>(
                                       request.number, static_cast<uint64_t>(launch_.lease_ms))));
      return;
    case CtlRequest::Verb::Acked:
      if (KeptReplica* replica = find(request.replica)) replica->acknowledge(request.number);
      return;
    case CtlRequest::Verb::Bye:
      may_end_ = true;
      return end_if_over();
    case CtlRequest::Verb::Seen:
      return;  // handled in KeeperCtl
  }
}

void Keeper::end_if_over() {
  const bool over = std::all_of(replicas_.begin(), replicas_.end(),
                                [](const auto& replica) { return replica->has_ended(); });
  std::error_code error;
  if (over && (may_end_ || !std::filesystem::exists(directory_.path() / "launch.json", error))) {
    loop_.stop();
  }
}

void Keeper::on_signal() {
  signals_.async_wait([this](const ErrorCode& error, int signal) {
    if (error) return;
    if (signal == SIGCHLD) {
      reap();
    } else {
      fmt::print(stderr, "{}: ending the replicas\n", signal_name(signal));
      may_end_ = true;
      for (const auto& replica : replicas_) {
        replica->stop(launch_.grace_ms, fmt::format("the keeper got {}", signal_name(signal)));
      }
      end_if_over();
    }
    on_signal();
  });
}

// The only place that waits for anything: replicas, and orphans that became our children.
void Keeper::reap() {
  for (;;) {
    int status = 0;
    rusage usage{};
    const pid_t pid = ::wait4(-1, &status, WNOHANG, &usage);
    if (pid < 0 && errno == EINTR) continue;
    has_children_ = pid == 0;
    if (pid <= 0) break;
    for (const auto& replica : replicas_) {
      if (replica->main_pid() == pid) replica->on_exit(status, usage);
    }
  }
  const bool any_ending = std::any_of(replicas_.begin(), replicas_.end(),
                                      [](const auto& replica) { return replica->is_ending(); });
  if (any_ending) sweep_in(0);
}

void Keeper::sweep_in(int64_t delay_ms) {
  const int64_t at_ms = boottime_ms() + delay_ms;
  if (sweep_at_ms_ != 0 && sweep_at_ms_ <= at_ms) return;
  sweep_at_ms_ = at_ms;
  sweep_timer_.expires_after(std::chrono::milliseconds(delay_ms));
  sweep_timer_.async_wait([this](const ErrorCode& error) {
    if (!error) sweep();
  });
}

// One look at the processes serves all replicas that end at about the same time.
void Keeper::sweep() {
  sweep_at_ms_ = 0;
  std::vector<TreeMarks> marks;
  for (const auto& replica : replicas_) marks.push_back(replica->marks());
  std::vector<std::vector<ProcessRow>> trees(replicas_.size() + 1);
  // Whatever our replicas started is below us, so without a child there is nothing.
  if (has_children_) trees = split_tree(ProcessTable::read(), ::getpid(), marks);

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

// Of CLOCK_BOOTTIME: the time a machine sleeps counts, since the daemon's doesn't stop meanwhile.
void Keeper::set_lease(int64_t left_ms) {
  if (launch_.lease_ms == 0 || !started_) return;
  if (!lease_.is_open()) {
    const int fd = ::timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    if (fd < 0) {
      fmt::print(stderr, "no timer for the lease: {}\n", errno_error("timerfd", errno).message);
      return;
    }
    lease_.assign(fd);
    watch_lease();
  }
  left_ms = std::max<int64_t>(left_ms, 1);  // 0 would disarm it
  itimerspec when{};
  when.it_value.tv_sec = left_ms / 1000;
  when.it_value.tv_nsec = (left_ms % 1000) * 1'000'000;
  ::timerfd_settime(lease_.native_handle(), 0, &when, nullptr);
}

void Keeper::watch_lease() {
  lease_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const ErrorCode& error) {
    if (error) return;
    uint64_t expirations = 0;
    // A renewal may have come between the expiry and now; then there is nothing to read.
    if (::read(lease_.native_handle(), &expirations, sizeof expirations) > 0) {
      const std::string why =
          fmt::format("lease expired: no word from the daemon for {} s", launch_.lease_ms / 1000);
      fmt::print(stderr, "{}\n", why);
      for (const auto& replica : replicas_) replica->stop(launch_.grace_ms, why);
    }
    watch_lease();
  });
}

// Tells when the launch directory is removed: with nobody to say `bye` that is the end. Its files
// are watched, since the directory itself lasts as long as our socket in it.
void Keeper::watch_directory() {
  if (!directory_events_.is_open()) {
    const int fd = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (fd < 0) return;  // past a user's quota: such a keeper stays until it is told
    directory_events_.assign(fd);
    ::inotify_add_watch(fd, directory_.path().c_str(), IN_DELETE | IN_ONLYDIR);
  }
  directory_events_.async_wait(
      asio::posix::stream_descriptor::wait_read, [this](const ErrorCode& error) {
        if (error) return;
        alignas(inotify_event) char events[4096];
        while (::read(directory_events_.native_handle(), events, sizeof events) > 0) {
        }
        end_if_over();
        watch_directory();
      });
}

// Takes descriptor 1 for the one word the runner waits for, and puts the log on 1 and 2.
Fd take_ready_pipe(const LaunchDir& directory) {
  Fd ready(::fcntl(1, F_DUPFD_CLOEXEC, 3));
  const Fd log(::open((directory.path() / "keeper.log").c_str(),
                      O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (log) {
    ::dup2(log.get(), 1);
    ::dup2(log.get(), 2);
  }
  return ready;
}

}  // namespace

int run_keeper(const std::filesystem::path& launch_dir) {
  std::error_code error;
  const LaunchDir directory(std::filesystem::absolute(launch_dir, error));
  Fd ready = take_ready_pipe(directory);
  std::setvbuf(stderr, nullptr, _IOLBF, 1024);
  std::signal(SIGPIPE, SIG_IGN);
  // Better a replica than its keeper when memory runs out. Only root may; others stay as they are.
  (void)write_switch("/proc/self/oom_score_adj", "-500");

  Result<std::optional<LaunchFile>> launch = directory.read_launch();
  if (!launch.ok() || !*launch) {
    fmt::print(stderr, "dtrain keeper: {}\n",
               launch.ok() ? (directory.path() / "launch.json").string() + " is not there"
                           : launch.error().message);
    return 1;
  }
  try {
    Keeper keeper(directory, std::move(**launch));
    if (Status prepared = keeper.prepare(); !prepared.ok()) {
      fmt::print(stderr, "dtrain keeper: {}\n", prepared.error().message);
      return 1;
    }
    (void)!::write(ready.get(), "ready\n", 6);
    ready.reset();
    keeper.run();
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "dtrain keeper: {}\n", e.what());
    return 1;
  }
}

Result<SpawnedKeeper> spawn_keeper(const std::filesystem::path& executable,
                                   const LaunchDir& launch) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("pipe", errno);
  SpawnedKeeper keeper;
  keeper.ready.reset(ends[0]);
  const Fd write_end(ends[1]);

  SpawnRequest request;
  request.argv = {executable.string(), "keeper", launch.path().string()};
  request.cwd = "/";
  request.output_fd = write_end.get();
  const Fd log(::open((launch.path() / "keeper.log").c_str(),
                      O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  request.error_fd = log ? log.get() : -1;
  TRY(keeper.process, spawn(request));
  return keeper;
}

std::string keeper_log_tail(const LaunchDir& launch) {
  constexpr size_t kTailBytes = 2000;
  std::string text = read_small_file(launch.path() / "keeper.log").value_or("");
  if (text.size() > kTailBytes) text.erase(0, text.size() - kTailBytes);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace dtrain::runner
