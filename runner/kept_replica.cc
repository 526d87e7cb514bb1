#include "runner/kept_replica.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>

#include "runner/cgroup.h"
#include "runner/keeper.h"
#include "runner/process.h"
#include "schema/clock.h"
#include "schema/quote.h"

namespace dtrain::runner {
namespace {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;

constexpr int kPipeBytes = 1 << 20;
constexpr size_t kReadBytes = size_t{1} << 20;
// After a small read the next one waits this long: a trainer that prints line by line costs a frame
// per millisecond, not one per line.
constexpr auto kGather = std::chrono::milliseconds(1);
constexpr auto kStartRetry = std::chrono::milliseconds(200);
constexpr int kStartTriesMax = 300;  // for about a minute
constexpr auto kRecordRetry = std::chrono::seconds(1);
constexpr size_t kSmallReadBytes = 64 << 10;
// When what got KILL is looked at again: soon, and ever more rarely for one that hangs in the
// kernel.
constexpr int64_t kRetryMs = 10;
constexpr int64_t kRetryMaxMs = 1'000;
// When all its processes are gone and the pipe is still open, its other end was handed to a process
// that isn't ours: what is in the pipe by now is taken, the rest is not waited for.
constexpr int64_t kForeignPipeMs = 1'000;
constexpr int kOomScoreAdj = 300;
// What somebody looks at a replica with is the first to go, unless the replica has most of what there is.
constexpr int kBesideOomScoreAdj = 1000;

// One thread, one buffer.
std::array<char, kReadBytes>& read_buffer() {
  static std::array<char, kReadBytes> buffer;
  return buffer;
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

std::string readable_size(uint64_t bytes) {
  if (bytes < (uint64_t{1} << 30)) return fmt::format("{} MiB", bytes >> 20);
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / static_cast<double>(1u << 30));
}

}  // namespace

KeptReplica::KeptReplica(asio::io_context& loop, const LaunchDir& directory, FactsWriter& facts,
                         const LaunchRecord& launch, const ReplicaLaunch& replica, KeeperCalls calls)
    : directory_(directory),
      facts_(facts),
      launch_(launch),
      replica_(replica),
      calls_(std::move(calls)),
      spool_(directory, replica.id, launch.spool_limit_bytes),
      watch_(replica.id.role == Role::Tensorboard ? std::vector<WatchedLine>() : launch.watched),
      output_(loop),
      read_timer_(loop),
      record_timer_(loop),
      finish_timer_(loop) {}

TreeMarks KeptReplica::marks() const {
  TreeMarks marks;
  if (phase_ == Phase::Waiting) return marks;
  if (!replica_.cgroups.empty()) marks.cgroups.push_back(replica_.cgroups);
  if (process_.pid > 0) marks.sessions.push_back(process_);
  marks.sessions.insert(marks.sessions.end(), beside_.begin(), beside_.end());
  marks.key = launch_.key;
  marks.replica = to_string(replica_.id);
  if (pipe_inode_ != 0) marks.pipe_inodes.push_back(pipe_inode_);
  return marks;
}

void KeptReplica::start() {
  if (phase_ != Phase::Waiting) return;
  phase_ = Phase::Running;
  memory_kills_before_ = memory_kills_since_boot();
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    exec_error_ = errno_error("pipe", errno);
  } else {
    Fd write_end(ends[1]);
    output_.assign(ends[0]);
    output_.non_blocking(true);
    ::fcntl(ends[0], F_SETPIPE_SZ, kPipeBytes);  // refused past a user's quota; then it is smaller
    struct stat pipe = {};
    ::fstat(ends[0], &pipe);
    pipe_inode_ = pipe.st_ino;

    SpawnRequest request = spawn_request();
    request.argv = replica_.argv;
    request.cwd = replica_.cwd;
    request.data = launch_.data;
    if (!replica_.image.empty()) {
      request.image = {replica_.image, launch_.shown};
      request.image.shown.push_back({replica_.cwd, replica_.cwd});
      request.image_layer = launch_.image_layer_of(replica_.id);
    }
    request.output_fd = write_end.get();
    request.oom_score_adj = kOomScoreAdj;
    Result<Child> child = spawn(request);
    if (child.ok()) {
      process_ = identify(child->pid);
      // It may be a zombie already; it is not reaped before we return to the loop, so the pid is
      // its.
      process_.pid = child->pid;
      main_alive_ = true;
    } else {
      exec_error_ = std::move(child).error();
    }
  }
  if (exec_error_ && start_later()) return;
  started_unix_ms_ = unix_ms();
  record_start();
  if (exec_error_) {
    phase_ = Phase::Ending;
    tree_gone_ = true;
    end_output();
  } else {
    read_output();
  }
}

SpawnRequest KeptReplica::spawn_request() const {
  SpawnRequest request;
  request.env = replica_.env;
  request.env["DTRAIN_KEY"] = launch_.key;
  request.env["DTRAIN_REPLICA"] = to_string(replica_.id);
  request.cgroups = replica_.cgroups;
  request.processors = replica_.processors;
  request.die_with_parent = true;
  return request;
}

Result<std::unique_ptr<Spawning>> KeptReplica::run_beside(const BesideCommand& command) {
  auto place = ProcessPlace::of(process_);
  if (!place.ok() && place.error().code == Code::NotFound) {
    return Error{Code::FailedPrecondition, fmt::format("{} has just ended", to_string(replica_.id)), ""};
  }
  if (!place.ok()) return std::move(place).error();
  SpawnRequest request = spawn_request();
  request.argv = command.argv;
  for (const auto& [name, value] : command.variables) request.env[name] = value;
  request.beside = &*place;
  request.input_fd = command.input_fd;
  request.on_terminal = command.on_terminal;
  request.output_fd = command.output_fd;
  request.error_fd = command.error_fd;
  request.oom_score_adj = kBesideOomScoreAdj;
  TRY(auto spawning, Spawning::begin(std::move(request)));
  if (replica_.cgroups.empty()) beside_.push_back(identify(spawning->pid()));
  return spawning;
}

void KeptReplica::on_beside_exit(int wait_status) {
  beside_kills_ += WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL;
}

// That the host has no process or descriptor left is not the program's failure, and passes.
bool KeptReplica::start_later() {
  if (exec_error_->code != Code::ResourceExhausted || starts_tried_++ >= kStartTriesMax) return false;
  fmt::print(stderr, "{} can't start yet: {}\n", to_string(replica_.id), exec_error_->message);
  exec_error_.reset();
  phase_ = Phase::Waiting;
  ErrorCode ignored;
  output_.close(ignored);
  read_timer_.expires_after(kStartRetry);
  read_timer_.async_wait([this](const ErrorCode& error) {
    if (!error) start();
  });
  return true;
}

// On a full disk it is tried again, and once more before the exit: an end is never seen without its
// start.
void KeptReplica::record_start() {
  if (start_recorded_ || started_unix_ms_ == 0) return;
  const ReplicaStart start{process_, started_unix_ms_, pipe_inode_,
                           exec_error_ ? exec_error_->message : ""};
  const Status written = facts_.add(replica_.id, start);
  start_recorded_ = written.ok();
  if (start_recorded_) return calls_.fact();
  fmt::print(stderr, "start of {}: {}\n", to_string(replica_.id), written.error().message);
  record_timer_.expires_after(kRecordRetry);
  record_timer_.async_wait([this](const ErrorCode& error) {
    if (!error) record_start();
  });
}

// ---- output

void KeptReplica::read_output() {
  if (std::exchange(waits_for_output_, true)) return;
  output_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const ErrorCode& error) {
    waits_for_output_ = false;
    if (error == asio::error::operation_aborted || output_ended_) return;
    if (!read_once()) return end_output();
  });
}

// Takes what is in the pipe, at most one buffer full, and sees to the next time. False: it is
// closed.
bool KeptReplica::read_once() {
  auto& buffer = read_buffer();
  size_t filled = 0;
  bool open = true;
  while (filled < read_most_) {
    const ssize_t got =
        ::read(output_.native_handle(), buffer.data() + filled, read_most_ - filled);
    if (got > 0) {
      filled += static_cast<size_t>(got);
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    open = got < 0 && errno == EAGAIN;
    break;
  }
  if (filled > 0) {
    look_at({buffer.data(), filled});
    spool_.append({buffer.data(), filled}, unix_ms());
    calls_.output();
  }
  if (!open) return false;
  if (filled >= std::min(kSmallReadBytes, read_most_) || phase_ == Phase::Ending) {
    read_output();
    return true;
  }
  read_timer_.expires_after(kGather);
  read_timer_.async_wait([this](const ErrorCode& error) {
    if (!error) read_output();
  });
  return true;
}

// A pattern may be slow. What the keeper has to do besides is not held up for long: as much is read at once as is looked at soon.
void KeptReplica::look_at(std::string_view output) {
  constexpr int64_t kSoonMs = 20;
  constexpr size_t kLeastBytes = 4 << 10;
  const int64_t begun_ms = boottime_ms();
  watch_.take(output);
  const bool was_slow = boottime_ms() - begun_ms > kSoonMs;
  read_most_ = was_slow ? std::max(read_most_ / 2, kLeastBytes) : std::min(read_most_ * 2, kReadBytes);
  record_lines();
  end_for_line();
}

// Before others can read them. On a full disk it is tried again with whatever comes next, without a word each time, and the
// exit has them all.
void KeptReplica::record_lines() {
  while (lines_recorded_ < watch_.found().size() && facts_.add(replica_.id, watch_.found()[lines_recorded_]).ok()) ++lines_recorded_;
}

void KeptReplica::end_output() {
  if (output_ended_) return;
  output_ended_ = true;
  read_timer_.cancel();
  ErrorCode ignored;
  output_.close(ignored);
  watch_.finish();
  record_lines();
  end_for_line();
  finish_if_gone();
}

// Once. Who is being stopped already ends for another reason; who printed it at its very end ends for it all the same.
void KeptReplica::end_for_line() {
  const PrintedLine* const line = watch_.ending();
  if (line == nullptr || stop_asked_ || ended_for_line_ || phase_ == Phase::Ended) return;
  ended_for_line_ = true;
  const std::string quoted = in_quotes(line->line);
  if (phase_ == Phase::Running) return end(launch_.grace_ms, "ended for having printed " + quoted);
  why_ = "printed " + quoted + " at its end";
}

// ---- the end

void KeptReplica::stop(int64_t grace_ms, const std::string& why) {
  stop_asked_ = true;
  end(grace_ms, why);
}

void KeptReplica::end(int64_t grace_ms, const std::string& why) {
  if (phase_ == Phase::Ended) return;
  if (phase_ == Phase::Waiting) {
    phase_ = Phase::Ending;
    why_ = why;
    tree_gone_ = true;
    exec_error_ = Error{Code::Cancelled, "stopped before it was started", ""};
    return end_output();
  }
  const int64_t kill_at_ms = boottime_ms() + grace_ms;
  if (phase_ == Phase::Running) {
    phase_ = Phase::Ending;
    term_due_ = grace_ms > 0;
    kill_at_ms_ = kill_at_ms;
    why_ = why;
  }
  kill_at_ms_ = std::min(kill_at_ms_, kill_at_ms);
  calls_.sweep_in(0);
}

void KeptReplica::on_exit(int wait_status, const rusage& usage) {
  main_alive_ = false;
  wait_status_ = wait_status;
  killed_ = killed_ || (stop_asked_ && boottime_ms() >= kill_at_ms_);   // if not by the loop, by the fence
  usage_ = usage;
  if (phase_ == Phase::Running) {
    phase_ = Phase::Ending;
    term_due_ = true;
    kill_at_ms_ = boottime_ms() + kLeftoverGraceMs;
  }
  calls_.sweep_in(0);
}

void KeptReplica::on_sweep(const std::vector<ProcessRow>& alive) {
  if (phase_ != Phase::Ending) return;
  if (alive.empty() && !main_alive_) {
    if (!tree_gone_) gone_at_ms_ = boottime_ms();
    tree_gone_ = true;
    return finish_if_gone();
  }
  tree_gone_ = false;
  const int64_t left_ms = kill_at_ms_ - boottime_ms();
  if (left_ms <= 0) {
    killed_ = killed_ || main_alive_;
    cgroup_kill(replica_.cgroups);
    signal_processes(alive, SIGKILL);
    retry_ms_ = std::clamp(2 * retry_ms_, kRetryMs, kRetryMaxMs);
    return calls_.sweep_in(retry_ms_);
  }
  if (std::exchange(term_due_, false)) signal_processes(alive, SIGTERM);
  calls_.sweep_in(left_ms);
}

// The last one to close the pipe is dead, but its end of file may still be on its way to us.
void KeptReplica::finish_if_gone() {
  if (phase_ != Phase::Ending || !tree_gone_) return;
  if (output_ended_) return write_exit();
  read_timer_.cancel();
  const int64_t left_ms = gone_at_ms_ + kForeignPipeMs - boottime_ms();
  if (!read_once()) return end_output();
  finish_timer_.expires_after(std::chrono::milliseconds(std::max<int64_t>(left_ms, 0)));
  finish_timer_.async_wait([this](const ErrorCode& error) {
    if (!error && !output_ended_) end_output();
  });
}

void KeptReplica::write_exit() {
  if (phase_ == Phase::Ended) return;
  spool_.finish(unix_ms());
  record_start();
  Status written = started_unix_ms_ == 0 || start_recorded_
                       ? facts_.add(replica_.id, make_exit())
                       : Status(Error{Code::ResourceExhausted, "its start is not written yet", ""});
  if (!written.ok()) {
    // A full disk. The replica has not ended until its end is written down.
    std::error_code gone;
    if (std::filesystem::exists(directory_.path(), gone)) {
      fmt::print(stderr, "exit of {}: {}\n", to_string(replica_.id), written.error().message);
      finish_timer_.expires_after(kRecordRetry);
      finish_timer_.async_wait([this](const ErrorCode& error) {
        if (!error) write_exit();
      });
      return;
    }
  }
  finish_timer_.cancel();
  // A group whose last member is just being torn down can't go yet; the runner removes the
  // launch's.
  (void)remove_cgroups(replica_.cgroups);
  phase_ = Phase::Ended;
  calls_.fact();
}

ReplicaExit KeptReplica::make_exit() const {
  ReplicaExit exit;
  CgroupUsage group = cgroup_usage(replica_.cgroups);
  group.memory_kills -= std::min(group.memory_kills, beside_kills_);
  exit.ended_unix_ms = unix_ms();
  exit.log_bytes = spool_.end_offset();
  exit.printed = watch_.found();
  exit.ended_for_line = ended_for_line_;
  exit.cpu_seconds =
      group.cpu_seconds.value_or(seconds(usage_.ru_utime) + seconds(usage_.ru_stime));
  // Counted in blocks of 512 bytes, descendants it waited for included.
  exit.read_bytes = group.read_bytes.value_or(static_cast<uint64_t>(usage_.ru_inblock) * 512);
  exit.written_bytes = group.written_bytes.value_or(static_cast<uint64_t>(usage_.ru_oublock) * 512);
  exit.memory_peak_bytes = static_cast<uint64_t>(usage_.ru_maxrss) * 1024;
  if (exec_error_) {
    exit.code =
        exec_error_->code == Code::Cancelled ? 128 + SIGTERM : exec_failure_code(*exec_error_);
    exit.cause = exec_error_->message;
    if (!exec_error_->hint.empty()) exit.cause += " (" + exec_error_->hint + ")";
  } else if (WIFSIGNALED(wait_status_)) {
    exit.signal = WTERMSIG(wait_status_);
    exit.code = 128 + exit.signal;
    exit.memory_kill = exit.signal == SIGKILL && !killed_ && group.memory_kills > 0;
    exit.cause = signal_cause(exit.signal, exit.memory_kill, group);
  } else {
    exit.code = WEXITSTATUS(wait_status_);
    exit.cause = describe_wait_status(wait_status_);
    if (group.memory_kills > 0 && exit.code != 0) {
      exit.cause += "; the kernel, out of memory, had killed one of its processes";
    }
  }
  if (exit.memory_kill && group.memory_peak_bytes)
    exit.memory_peak_bytes = *group.memory_peak_bytes;
  if (!why_.empty()) exit.cause = why_ + "; " + exit.cause;
  return exit;
}

std::string KeptReplica::signal_cause(int signal, bool memory_kill,
                                      const CgroupUsage& group) const {
  const std::string plain = describe_wait_status(wait_status_);
  if (signal != SIGKILL || killed_) return plain;
  if (!memory_kill) {
    return plain + ", not by dtrain" +
           (memory_kills_since_boot() > memory_kills_before_
                ? "; the kernel was out of memory since it started: probably by that"
                : "");
  }
  // A group without a limit of its own reports a number no machine has.
  constexpr uint64_t kNoLimitBytes = uint64_t{1} << 60;
  if (group.memory_limit_bytes && *group.memory_limit_bytes < kNoLimitBytes) {
    return fmt::format("out of memory: killed at its limit of {}",
                       readable_size(*group.memory_limit_bytes));
  }
  return "out of memory: killed by the kernel, the host had none left";
}

}  // namespace dtrain::runner
