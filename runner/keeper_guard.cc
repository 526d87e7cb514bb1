#include "runner/keeper_guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <utility>

#include "runner/lost_keeper.h"

namespace dtrain::runner {
namespace asio = boost::asio;
namespace {

// Until what could not be killed is tried again: a while on the thread that others need.
constexpr std::chrono::milliseconds kKillAgainMs{2000};
// A disk may be slow.
constexpr int kHungLooks = 30;

}  // namespace

KeeperGuard::KeeperGuard(asio::io_context& loop, FileWorker& files, LaunchDir directory,
                         Callbacks callbacks, std::chrono::milliseconds answers)
    : loop_(loop),
      files_(files),
      directory_(std::move(directory)),
      name_(directory_.path().filename().string()),
      callbacks_(std::move(callbacks)),
      answers_(answers),
      ends_due_(loop),
      kill_again_(loop) {}

// ---- whether it lives

void KeeperGuard::watch(Child keeper) {
  watch_ = ProcessWatch::of(loop_, std::move(keeper), callbacks_.gone);
}

Status KeeperGuard::watch(const ProcessIdentity& keeper) {
  TRY(watch_, ProcessWatch::of(loop_, keeper, callbacks_.gone));
  return ok();
}

// ---- whether it runs

void KeeperGuard::await_ends(int64_t grace_ms) {
  const auto due = std::chrono::steady_clock::now() + answers_ +
                   std::chrono::milliseconds(std::min<int64_t>(grace_ms, 86'400'000));
  if (awaiting_ends_ && ends_due_.expiry() <= due) return;
  awaiting_ends_ = true;
  ends_due_.expires_at(due);
  ends_due_.async_wait([this, alive = std::weak_ptr(alive_)](boost::system::error_code error) {
    if (error || alive.expired()) return;
    awaiting_ends_ = false;
    look();
  });
}

void KeeperGuard::look() {
  if (!callbacks_.awaits_ends()) return;
  const bool stopped = is_stopped(keeper_);
  if (stopped) {
    fmt::print(stderr, "{}: its keeper (pid {}) is stopped and ends nothing; it is {}\n", name_,
               keeper_.pid, continued_ ? "killed" : "continued");
    watch_->signal(continued_ ? SIGKILL : SIGCONT);
  }
  continued_ = stopped;
  hung_looks_ = is_in_kernel(keeper_) ? hung_looks_ + 1 : 0;
  if (hung_looks_ == kHungLooks) {
    fmt::print(stderr, "{}: its keeper (pid {}) hangs in the kernel and ends nothing; it is killed\n", name_, keeper_.pid);
    watch_->signal(SIGKILL);
  }
  await_ends(0);
}

// ---- what it leaves

void KeeperGuard::end_strays() {
  auto ends = std::make_shared<Result<std::map<ReplicaId, ReplicaExit>>>(Error{});
  files_.run([ends, directory = directory_] { *ends = end_lost_launch(directory); },
             [this, ends, alive = std::weak_ptr(alive_)] {
               if (alive.expired()) return;
               if (ends->ok()) return callbacks_.strays_gone(**ends);
               const std::string& why = ends->error().message;
               if (why != strays_alive_) fmt::print(stderr, "{}: {}\n", name_, why);
               strays_alive_ = why;
               kill_again_.expires_after(kKillAgainMs);
               kill_again_.async_wait([this, alive](boost::system::error_code error) {
                 if (!error && !alive.expired()) end_strays();
               });
             });
}

Status KeeperGuard::end_strays_now() {
  const auto ends = end_lost_launch(directory_);
  if (ends.ok()) {
    callbacks_.strays_gone(*ends);
  } else if (ends.error().code == Code::DeadlineExceeded) {
    end_strays();  // it may take long: the other launches are not to wait
  } else {
    return ends.error();
  }
  return ok();
}

}  // namespace dtrain::runner
