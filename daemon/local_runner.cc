#include "daemon/local_runner.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "schema/fd.h"
#include "schema/lock_file.h"
#include "schema/text_formats.h"

namespace dtrain::daemon {

namespace {

constexpr std::chrono::milliseconds kBackoffMin{500};
constexpr std::chrono::milliseconds kBackoffMax{10'000};
constexpr std::chrono::seconds kHealthyAfter{30};

std::vector<std::string> command_of(const Home& home, const Config& config) {
  std::vector<std::string> words = {"dtrain", "runner", "run"};
  const auto add = [&](std::string name, std::string value) {
    words.push_back(std::move(name));
    words.push_back(std::move(value));
  };
  add("--home", home.runner().string());
  add("--join", "unix:" + home.socket().string());
  add("--daemon-home", home.root.string());
  add("--ports", fmt::format("{}-{}", config.ports.first, config.ports.last));
  if (!config.address.empty()) add("--address", config.address);
  if (config.cpus) add("--cpus", fmt::format("{}", *config.cpus));
  if (!config.labels.empty()) add("--labels", fmt::format("{}", fmt::join(config.labels, ",")));
  if (config.memory_bytes) add("--mem", format_memory(*config.memory_bytes));
  if (config.cache_bytes) add("--cache", format_memory(*config.cache_bytes));
  return words;
}

// In a session of its own, so that a Ctrl-C meant for the daemon does not reach it; no descriptor of
// ours is inherited. posix_spawn, because gRPC's threads exist already.
Result<pid_t> spawn_runner(const Home& home, const Config& config) {
  const std::string log = home.runner_log().string();
  std::vector<std::string> words = command_of(home, config);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  posix_spawn_file_actions_addclosefrom_np(&files, 3);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
  pid_t pid = -1;
  const int error =
      posix_spawn(&pid, "/proc/self/exe", &files, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return errno_error("start the local runner", error);
  return pid;
}

// A runner that we did not start, by its lock. Empty when nobody holds that. A pidfd, since its number
// may be somebody else's by the time it gets a signal.
struct Holder {
  pid_t pid = -1;
  Fd process;
};
Holder holder_of(const std::filesystem::path& lock) {
  const auto pid = lock_holder(lock);
  Fd process(pid ? static_cast<int>(syscall(SYS_pidfd_open, *pid, 0)) : -1);
  // The number is its if it holds the lock still.
  if (!process || lock_holder(lock) != pid) return {};
  return {*pid, std::move(process)};
}

void send_signal(const Holder& holder, int signal) {
  syscall(SYS_pidfd_send_signal, holder.process.get(), signal, nullptr, 0);
}

}  // namespace

LocalRunner::LocalRunner(boost::asio::io_context& loop, const Home& home, const Config& config)
    : home_(home),
      config_(config),
      ended_(loop),
      again_(loop),
      word_(loop),
      patience_(config.runner_timeout_ms) {}

void LocalRunner::start() {
  if (stopping_ || pid_ > 0) return;
  // One that outlived the last daemon: it dials in by itself, and is replaced only once it is gone.
  if (is_held(home_.runner() / "lock")) return adopt();
  const auto pid = spawn_runner(home_, config_);
  if (!pid.ok()) {
    std::fprintf(stderr, "%s\n", pid.error().message.c_str());
    start_later();
    return;
  }
  pid_ = *pid;
  started_ = std::chrono::steady_clock::now();
  await_word();
  wait_for_end();
}

void LocalRunner::adopt() {
  Holder holder = holder_of(home_.runner() / "lock");
  if (!holder.process) return start_later();
  await_word();
  ended_.assign(holder.process.release());
  ended_.async_wait(ended_.wait_read, [this, pid = holder.pid](boost::system::error_code error) {
    if (error) return;
    ended_.close();
    word_.cancel();
    std::fprintf(stderr, "the local runner (pid %d) of an earlier daemon ended\n", pid);
    start_later();
  });
}

// It may hang. While it has no stream nobody else would see that.
void LocalRunner::await_word() {
  word_.expires_after(patience_);
  word_.async_wait([this](boost::system::error_code error) {
    if (error) return;
    patience_ *= 2;   // it may as well need that long
    kill_hung();
  });
}

void LocalRunner::wait_for_end() {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  // No descriptor is free, or no memory. Whenever there is one again: it stays ours until it is reaped.
  if (fd < 0) {
    again_.expires_after(kBackoffMin);
    again_.async_wait([this](boost::system::error_code error) {
      if (!error) wait_for_end();
    });
    return;
  }
  ended_.assign(fd);
  ended_.async_wait(ended_.wait_read, [this](boost::system::error_code error) {
    if (error) return;
    int status = 0;
    waitpid(pid_, &status, WNOHANG);
    std::fprintf(stderr, "the local runner (pid %d) ended, status %d\n", pid_, status);
    pid_ = -1;
    ended_.close();
    word_.cancel();
    if (on_ended) on_ended();
    if (stopping_) return;
    if (std::chrono::steady_clock::now() - started_ > kHealthyAfter) backoff_ = {};
    start_later();
  });
}

void LocalRunner::start_later() {
  again_.expires_after(backoff_);
  backoff_ = std::clamp(backoff_ * 2, kBackoffMin, kBackoffMax);
  again_.async_wait([this](boost::system::error_code error) {
    if (!error) start();
  });
}

bool LocalRunner::is_own(const HostId& host) const {
  std::string own;
  std::ifstream(home_.runner() / "host-id") >> own;
  return own == host.hex;
}

void LocalRunner::connected(const HostId& host) {
  if (!is_own(host)) return;
  word_.cancel();
  patience_ = std::chrono::milliseconds(config_.runner_timeout_ms);
  if (on_joined) on_joined();
}

void LocalRunner::disconnected(const HostId& host) {
  const bool is_watched = ended_.is_open();   // else it is gone, and the next one's word is awaited
  if (!stopping_ && is_watched && is_own(host)) await_word();
}

void LocalRunner::replace(const HostId& hung) {
  if (is_own(hung)) kill_hung();
}

void LocalRunner::kill_hung() {
  const Holder runner = holder_of(home_.runner() / "lock");
  const pid_t pid = runner.process ? runner.pid : pid_;   // ours may not have got as far as its lock
  if (stopping_ || pid <= 0) return;
  std::fprintf(stderr, "the local runner (pid %d) hangs and is killed\n", pid);
  if (runner.process) {
    send_signal(runner, SIGKILL);
  } else {
    kill(pid, SIGKILL);   // ours until it is reaped
  }
  backoff_ = {};
}

void LocalRunner::stop() {
  stopping_ = true;
  again_.cancel();
  word_.cancel();
  if (pid_ > 0) {
    kill(pid_, SIGTERM);   // ours until it is reaped
  } else if (const Holder runner = holder_of(home_.runner() / "lock"); runner.process) {
    send_signal(runner, SIGTERM);
  }
}

}  // namespace dtrain::daemon
