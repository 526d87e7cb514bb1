#include "runner/local_daemon.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "runner/environment.h"
#include "schema/lock_file.h"

namespace dtrain::runner {
namespace {

// A command that a person types starts a daemon at once, and `daemon stop` ends its runner within
// this time: only a daemon that nobody else replaces is ours to start.
constexpr int64_t kRestartFirstMs = 500;
constexpr int64_t kRestartMaxMs = 30'000;

}  // namespace

LocalDaemon::LocalDaemon(boost::asio::io_context& loop, Home home)
    : loop_(loop), home_(std::move(home)), timer_(loop), backoff_ms_(kRestartFirstMs) {}

void LocalDaemon::lost() {
  lost_ = true;
  look_later();
}

void LocalDaemon::found() {
  lost_ = false;
  backoff_ms_ = kRestartFirstMs;
  timer_.cancel();
}

void LocalDaemon::look_later() {
  timer_.expires_after(std::chrono::milliseconds(backoff_ms_));
  backoff_ms_ = std::min(backoff_ms_ * 2, kRestartMaxMs);
  timer_.async_wait([this](boost::system::error_code error) {
    if (!error && lost_) look();
  });
}

void LocalDaemon::look() {
  std::error_code ignored;
  const bool stopped_by_hand = std::filesystem::exists(home_.stopped_marker(), ignored);
  // Without a lock somebody removes the home just now, and would find a new one in it.
  const bool has_home = std::filesystem::exists(home_.lock(), ignored);
  if (has_home && !stopped_by_hand && !is_held(home_.lock())) start();
  look_later();
}

void LocalDaemon::start() {
  const std::string log = home_.daemon_log().string();
  const dtrain::Fd output(
      open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  SpawnRequest request;
  request.argv = {"/proc/self/exe", "daemon", "run"};
  request.cwd = "/";
  request.env = own_process_environment();
  request.env["DTRAIN_HOME"] = home_.root.string();
  request.env.erase("DTRAIN_READY_FD");
  request.output_fd = output ? output.get() : -1;
  Result<Child> child = spawn(request);
  if (!child.ok()) {
    fmt::print(stderr, "the daemon is gone and can't be started: {}\n", child.error().message);
    return;
  }
  fmt::print(stderr, "the daemon was gone; started another, pid {}\n", child->pid);
  child_ = ProcessWatch::of(loop_, std::move(*child), [this] { child_.reset(); });
}

}  // namespace dtrain::runner
