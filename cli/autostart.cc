#include "cli/autostart.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <vector>

#include "schema/clock.h"
#include "schema/config.h"
#include "schema/fd.h"
#include "schema/lock_file.h"

namespace dtrain::cli {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kStartTimeoutMs = 30'000;
constexpr size_t kLogTailLines = 8;

// What the daemon wrote since `from`: its last lines.
std::string log_tail(const fs::path& log, std::streamoff from) {
  std::ifstream in(log, std::ios::binary);
  in.seekg(0, std::ios::end);
  in.seekg(in.tellg() < from ? 0 : from);   // less: it has begun a new file
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    if (line.empty()) continue;
    lines.push_back(line);
    if (lines.size() > kLogTailLines) lines.erase(lines.begin());
  }
  std::string tail;
  for (const std::string& line : lines) tail += "\n  | " + line;
  return tail;
}

// A daemon on a full disk can't even write why it ended.
bool is_full(const fs::path& directory) {
  constexpr uintmax_t kNeededBytes = 64 << 10;
  std::error_code failed;
  const fs::space_info space = fs::space(directory, failed);
  return !failed && space.available < kNeededBytes;
}

struct Child {
  pid_t pid = 0;
  std::streamoff log_start = 0;
};

// Between fork and exec only async-signal-safe calls: everything is made ready before.
[[noreturn]] void become_daemon(const char* program, char** arguments, char** environment,
                                int log_fd, int null_fd) {
  setsid();
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGINT, SIG_DFL);
  signal(SIGPIPE, SIG_DFL);
  dup2(null_fd, STDIN_FILENO);
  dup2(log_fd, STDOUT_FILENO);
  dup2(log_fd, STDERR_FILENO);
  // Everything but the three is close-on-exec; the ready descriptor was made without it, on
  // purpose.
  if (chdir("/") == 0) execve(program, arguments, environment);
  _exit(127);
}

Result<Child> spawn_daemon(const Home& home, const std::string& program, int ready_fd) {
  const std::string log_path = home.daemon_log().string();
  const Fd log(
      open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (log.get() < 0) return home_error("opening " + log_path, errno);
  const Fd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (null.get() < 0) return errno_error("opening /dev/null", errno);

  std::vector<std::string> words = {"dtrain", "daemon", "run"};
  std::vector<std::string> settings = {"DTRAIN_HOME=" + home.root.string(),
                                       fmt::format("DTRAIN_READY_FD={}", ready_fd)};
  std::vector<char*> arguments, environment;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.starts_with("DTRAIN_HOME=") || text.starts_with("DTRAIN_READY_FD=")) continue;
    environment.push_back(*entry);
  }
  for (std::string& setting : settings) environment.push_back(setting.data());
  environment.push_back(nullptr);

  Child child;
  child.log_start = lseek(log.get(), 0, SEEK_END);
  child.pid = fork();
  if (child.pid < 0) return errno_error("starting the daemon", errno);
  if (child.pid == 0) {
    // Whatever this process was given open stays here, except the descriptor to report on.
    close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
    fcntl(ready_fd, F_SETFD, 0);
    become_daemon(program.c_str(), arguments.data(), environment.data(), log.get(), null.get());
  }
  return child;
}

std::string end_of(int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("was killed by signal {}", WTERMSIG(status));
  }
  return fmt::format("ended with code {}", WEXITSTATUS(status));
}

// Somebody else's daemon holds the home: whether it listens before the deadline. The socket's
// folder tells when it appears; a file that exists may still refuse for a moment, hence the short
// waits.
bool await_other(const Home& home, int64_t deadline_ms) {
  constexpr int kRetryMs = 100;
  const Fd watch(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (watch) {
    inotify_add_watch(watch.get(), home.socket().parent_path().c_str(), IN_CREATE | IN_MOVED_TO);
  }
  while (!find_listener(home).ok()) {
    if (boottime_ms() >= deadline_ms || !is_held(home.lock())) return find_listener(home).ok();
    pollfd event = {watch.get(), POLLIN, 0};
    char happened[512];
    if (poll(&event, 1, kRetryMs) > 0) (void)!read(watch.get(), happened, sizeof(happened));
  }
  return true;
}

Error unheard(const Home& home, pid_t pid, Code code) {
  return {code, fmt::format("the daemon (pid {}) does not listen at {}", pid, home.socket().string()),
          fmt::format("if that file was deleted: kill {} ends it, the next command starts another, and training goes on",
                      pid)};
}

// Ready, dead, or too slow: whichever comes first.
Status await_ready(const Home& home, const Child& child, int ready_fd) {
  const Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, child.pid, 0)));
  const int64_t deadline_ms = boottime_ms() + kStartTimeoutMs;
  while (true) {
    const int64_t left_ms = deadline_ms - boottime_ms();
    pollfd events[] = {{ready_fd, POLLIN, 0}, {pidfd.get(), POLLIN, 0}};
    const int happened =
        left_ms <= 0 ? 0 : poll(events, pidfd.get() >= 0 ? 2 : 1, static_cast<int>(left_ms));
    if (happened < 0 && errno == EINTR) continue;
    if (happened <= 0) {
      return Error{
          Code::DeadlineExceeded,
          fmt::format("the daemon (pid {}) is not ready after {} s{}", child.pid,
                      kStartTimeoutMs / 1000, log_tail(home.daemon_log(), child.log_start)),
          fmt::format("its log is {}", home.daemon_log().string())};
    }
    char byte = 0;
    if (events[0].revents != 0 && read(ready_fd, &byte, 1) == 1) return ok();
    int status = 0;
    waitpid(child.pid, &status, 0);
    // Another one may have been started in another way and have won the home.
    if (is_held(home.lock())) {
      if (await_other(home, deadline_ms)) return ok();
      // To start another once more would only wait as long again.
      if (const auto holder = lock_holder(home.lock())) return unheard(home, *holder, Code::DeadlineExceeded);
    }
    if (is_full(home.root)) {
      return Error{
          Code::ResourceExhausted,
          fmt::format("the daemon did not start: no space is left for {}", home.root.string()),
          "free some disk space, or set DTRAIN_HOME to a directory on another disk"};
    }
    // By itself it ended for a reason; what killed it may be over.
    return Error{WIFSIGNALED(status) ? Code::Unavailable : Code::FailedPrecondition,
                 fmt::format("the daemon did not start: it {}{}", end_of(status),
                             log_tail(home.daemon_log(), child.log_start)),
                 fmt::format("its log is {}; `dtrain daemon run` starts it in this terminal",
                             home.daemon_log().string())};
  }
}

Status try_to_start(const Home& home, const std::string& program) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return errno_error("pipe", errno);
  const Fd ready(ends[0]);
  Fd report(ends[1]);
  TRY(const Child child, spawn_daemon(home, program, report.get()));
  report.reset();
  return await_ready(home, child, ready.get());
}

}  // namespace

Error home_error(const std::string& what, int errno_value) {
  Error error = errno_error(what, errno_value);
  if (error.hint.empty()) error.hint = "set DTRAIN_HOME to a directory that you can write to";
  return error;
}

Result<Listener> find_listener(const Home& home) {
  const std::string path = home.socket().string();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return Error{Code::InvalidArgument, "the socket's path is too long: " + path,
                 "set DTRAIN_HOME to a shorter one"};
  }
  std::memcpy(address.sun_path, path.c_str(), path.size());
  Fd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (probe.get() < 0) return errno_error("socket", errno);
  if (::connect(probe.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    if (errno == ENOENT || errno == ECONNREFUSED) {
      if (const auto holder = lock_holder(home.lock())) {
        return unheard(home, *holder, Code::Unavailable);
      }
      return Error{Code::Unavailable, fmt::format("no daemon runs for {}", home.root.string()),
                   "start one: dtrain daemon start"};
    }
    return errno_error("connecting to " + path, errno);
  }
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(probe.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return errno_error("asking who listens on " + path, errno);
  }
  if (peer.uid != geteuid()) {
    return Error{Code::PermissionDenied,
                 fmt::format("{} is served by a process of user {} (pid {}), not by yours", path,
                             peer.uid, peer.pid),
                 "set DTRAIN_HOME to a directory of yours"};
  }
  return Listener{peer.pid, std::move(probe)};
}

Status start_daemon(const Home& home, const std::string& program, StartAs as) {
  const std::string marker = home.stopped_marker().string();
  if (as == StartAs::Automatic && access(marker.c_str(), F_OK) == 0) {
    return Error{Code::FailedPrecondition, "the daemon was stopped by hand",
                 "start it again: dtrain daemon start; what runs goes on without one, and dtrain daemon stop --kill ends it"};
  }
  const std::string lock_path = (home.root / "start.lock").string();
  const Fd lock(open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (lock.get() < 0) return home_error("opening " + lock_path, errno);
  // Bounded: whoever holds it waits for its daemon no longer than kStartTimeoutMs.
  while (flock(lock.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return errno_error("locking " + lock_path, errno);
  }
  if (as == StartAs::ByHand && unlink(marker.c_str()) != 0 && errno != ENOENT) {
    return home_error("removing " + marker, errno);
  }
  const auto listener = find_listener(home);
  if (listener.ok()) return ok();
  if (listener.error().code != Code::Unavailable) return listener.error();
  TRY(read_config(home));  // a mistake is told here, and not out of the daemon's log

  auto started = try_to_start(home, program);
  // One that was killed a moment ago may have held the home until now.
  const bool ended = !started.ok() && (started.error().code == Code::FailedPrecondition ||
                                       started.error().code == Code::Unavailable);
  return ended ? try_to_start(home, program) : started;
}

}  // namespace dtrain::cli
